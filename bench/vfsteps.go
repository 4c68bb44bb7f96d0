package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// vfSteps is what the plugin sriov-cni does for a VF, by `ip` and host-local, in as few
// processes as the order of its steps allows: it cannot be fetched from the module proxy.
// Of that plugin it leaves out, in its favour, the files that it keeps, its lock, its wait
// for a carrier (at most 0.2 s) and its word to neighbours.
type vfSteps struct {
	node *node
	ipam string // path of host-local
	vfs  []vf
}

func (s *vfSteps) Node() *node   { return s.node }
func (s *vfSteps) Settle() error { return nil }

func (s *vfSteps) Call(w *worker, command string, p *pod) error {
	if command == "DEL" {
		return s.del(w, p)
	}
	return s.add(w, p)
}

func (s *vfSteps) add(w *worker, p *pod) error {
	v := s.vfs[p.index]
	if err := ip(w, "", v.give(p.name)); err != nil {
		return err
	}
	out, err := s.host(w, "ADD", p)
	if err != nil {
		return err
	}
	address, gateway, err := given(out)
	if err != nil {
		return err
	}
	return ip(w, p.name, v.configure(address, gateway))
}

func (s *vfSteps) del(w *worker, p *pod) error {
	v := s.vfs[p.index]
	if _, err := s.host(w, "DEL", p); err != nil {
		return err
	}
	if err := ip(w, "", v.reset()); err != nil {
		return err
	}
	return ip(w, p.name, v.release())
}

// host calls host-local.
func (s *vfSteps) host(w *worker, command string, p *pod) ([]byte, error) {
	return w.run(environ(command, filepath.Dir(s.ipam), p), []byte(s.vfs[p.index].conf()), s.ipam)
}

// ip does a batch, in a pod's namespace if there is a name.
func ip(w *worker, pod string, batch []string) error {
	argv := []string{"ip", "-batch", "-"}
	if pod != "" {
		argv = []string{"ip", "-n", pod, "-batch", "-"}
	}
	_, err := w.run(os.Environ(), []byte(strings.Join(batch, "\n")+"\n"), argv...)
	return err
}

// temporary is the device's name on its way.
func (v vf) temporary() string { return fmt.Sprintf("temp_%d", v.index) }

// admin is a command about the VF at its physical function.
func (v vf) admin(what string) string {
	return fmt.Sprintf("link set dev %s vf %d %s", guestPF, v.index, what)
}

// give sets the attributes and moves the device.
func (v vf) give(pod string) []string {
	dev := "link set dev " + v.temporary()
	return []string{
		"link show dev " + guestPF, // the former attributes, for DEL
		v.admin("vlan 100"), v.admin("mac " + v.declared), v.admin("trust on"),
		"link set dev " + v.name + " down", "link set dev " + v.name + " name " + v.temporary(),
		dev + " address " + v.declared, dev + " netns " + pod,
	}
}

func (v vf) configure(address, gateway string) []string {
	return []string{
		"link set dev " + v.temporary() + " name eth0", "link set dev eth0 up",
		"addr add " + address + " dev eth0", "route add default via " + gateway,
	}
}

// reset sets the former attributes.
func (v vf) reset() []string {
	return []string{"link show dev " + guestPF, v.admin("vlan 0"), v.admin("mac 00:00:00:00:00:00"), v.admin("trust off")}
}

// release brings the device back.
func (v vf) release() []string {
	return []string{
		"link set dev eth0 down", "link set dev eth0 name " + v.name,
		"link set dev " + v.name + " address " + v.mac, "link set dev " + v.name + " netns 1",
	}
}
