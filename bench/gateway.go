package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Addresses on the wire between the node and the world outside.
const (
	nodeAddr  = "192.0.2.1"
	worldAddr = "192.0.2.254"
	worldPort = "5001"
)

// The rule alone: what masquerades the bench's pods and does nothing else.
var loneRule = []string{
	"add table ip alone", "add chain ip alone out { type nat hook postrouting priority srcnat; }",
	"add rule ip alone out ip saddr 10.16.0.0/16 oifname out0 masquerade",
}

// way is a node whose first pod reaches the world by the node's NIC out0; the second
// namespace is the world.
type way struct {
	*fairlead
	objects string // file
	seen    chan seen
}

// seen is one connection as the world has it.
type seen struct {
	from  string
	bytes int64
	took  time.Duration
}

// gatewayRow is row 15 but for a gateway node's end, which takes a cluster: TestGatewayNodes
// tells how long that is felt.
func gatewayRow(b *bench) (lines []line, err error) {
	const subnets = 250
	f, err := b.ours(2, manySubnets(subnets), "/var/lib/fairlead")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.node.close()) }()
	w := &way{fairlead: f, objects: filepath.Join(f.node.dir, "objects", "objects.yaml"), seen: make(chan seen, 1)}
	if err := w.wire(); err != nil {
		return nil, err
	}
	ours, alone, err := w.masquerades(3*b.rounds, manySubnets(subnets))
	if err != nil {
		return nil, err
	}
	sent, lost, err := w.transfers()
	if err != nil {
		return nil, err
	}
	var ratios []float64
	for i := range ours {
		ratios = append(ratios, ours[i]/alone[i])
	}
	return []line{
		{row: "15", what: "masquerade: throughput / the rule alone", load: fmt.Sprintf("%d subnets, 1 TCP", subnets),
			ours: fmt.Sprintf("%.0f Mbit/s", median(ours)), peer: fmt.Sprintf("%.0f Mbit/s", median(alone)), got: median(ratios), bound: atLeast(0.95, 1)},
		{row: "15", what: "a NIC given to a bridge and back: pings lost", load: "1 each 10 ms",
			ours: fmt.Sprintf("%d of %d", lost, sent), peer: "0", got: float64(lost), bound: atMost(0, 0)},
	}, nil
}

// wire joins the node and the world, where somebody listens, and attaches the pod.
func (w *way) wire() error {
	pod, world := w.node.pods[0], w.node.pods[1]
	for _, c := range []string{
		"ip link add out0 type veth peer name eth0 netns " + world.name, "ethtool -K out0 tx off", "ip addr add " + nodeAddr + "/24 dev out0", "ip link set out0 up",
		"ip route add default via " + worldAddr, "sysctl -qw net.ipv4.ip_forward=1", "ip -n " + world.name + " link set eth0 up", "ip netns exec " + world.name + " ethtool -K eth0 tx off",
		"ip -n " + world.name + " addr add " + worldAddr + "/24 dev eth0", "ip -n " + world.name + " route add default via " + nodeAddr,
	} {
		if err := w.node.command(strings.Fields(c)...); err != nil {
			return err
		}
	}
	w.node.renew(w.node.pods[:1])
	return errors.Join(
		w.node.inside(func() error { return w.Call(&worker{}, "ADD", pod) }),
		w.in(world, func() error {
			l, err := net.Listen("tcp", net.JoinHostPort(worldAddr, worldPort))
			if err == nil {
				go w.hear(l)
			}
			return err
		}),
	)
}

// in runs f in a pod's network namespace.
func (w *way) in(p *pod, f func() error) error {
	return w.node.inside(func() error {
		ns, err := os.Open(p.netns)
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter %s: %w", p.netns, err)
		}
		return f()
	})
}

// hear takes one connection after the other to its end.
func (w *way) hear(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		begun := time.Now()
		n, _ := io.Copy(io.Discard, c)
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		_ = c.Close()
		w.seen <- seen{host, n, time.Since(begun)}
	}
}

// send is a connection of the pod to the world that sends for so long.
func (w *way) send(window time.Duration) (out seen, err error) {
	err = w.in(w.node.pods[0], func() error {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(worldAddr, worldPort), 5*time.Second)
		if err != nil {
			return err
		}
		buf := make([]byte, 128<<10)
		for end := time.Now().Add(window); err == nil && time.Now().Before(end); {
			_, err = c.Write(buf)
		}
		return errors.Join(err, c.Close())
	})
	if err != nil {
		return out, err
	}
	return <-w.seen, nil
}

// from waits until the world sees the pod as this address.
func (w *way) from(addr string) error {
	return until(func() error {
		s, err := w.send(0)
		if err == nil && s.from != addr {
			err = fmt.Errorf("the world sees %s, not %s", s.from, addr)
		}
		return err
	})
}

// masquerades are the rates, in Mbit/s, of the agent's rules and of the rule alone, in turn.
func (w *way) masquerades(rounds int, plain string) (ours, alone []float64, err error) {
	const window = time.Second // many short turns: what the machine does besides meets both
	natted := strings.ReplaceAll(plain, "protocol: IPv4,", "protocol: IPv4, natOutgoing: true,")
	measure := func(to *[]float64) error {
		s, err := w.send(window)
		if err == nil && s.from != nodeAddr {
			err = fmt.Errorf("the world sees %s", s.from)
		}
		*to = append(*to, float64(s.bytes)*8/1e6/s.took.Seconds())
		return err
	}
	for range rounds {
		err := os.WriteFile(w.objects, []byte(natted), 0o600)
		if err == nil {
			err = w.from(nodeAddr)
		}
		if err == nil {
			err = measure(&ours)
		}
		if err == nil {
			err = os.WriteFile(w.objects, []byte(plain), 0o600)
		}
		if err == nil {
			err = w.from(w.podAddr())
		}
		for _, r := range loneRule {
			err = errors.Join(err, w.node.command("nft", r))
		}
		if err == nil {
			err = measure(&alone)
		}
		if err := errors.Join(err, w.node.command("nft", "delete table ip alone")); err != nil {
			return nil, nil, err
		}
	}
	return ours, alone, nil
}

// podAddr is the pod's own address, "" while it has none.
func (w *way) podAddr() string {
	out, _ := w.node.output("ip", "-n", w.node.pods[0].name, "-4", "-o", "addr", "show", "eth0")
	if m := regexp.MustCompile(`inet ([\d.]+)`).FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return ""
}

// transfers has a provider network take the NIC, and gives it back, while the world pings
// the node.
func (w *way) transfers() (sent, lost int, err error) {
	objects, err := os.ReadFile(w.objects)
	if err != nil {
		return 0, 0, err
	}
	var text []byte
	pinged := make(chan error, 1)
	go func() {
		pinged <- w.in(w.node.pods[1], func() (err error) {
			text, err = exec.Command("ping", "-n", "-q", "-i", "0.01", "-c", "400", "-w", "20", nodeAddr).Output()
			return err
		})
	}()
	time.Sleep(500 * time.Millisecond)
	network := "---\napiVersion: kubeovn.io/v1\nkind: ProviderNetwork\nmetadata: {name: wan}\nspec: {defaultInterface: out0}\n"
	for _, step := range []struct{ objects, link string }{{string(objects) + network, "br-wan"}, {string(objects), "out0"}} {
		err = errors.Join(err, os.WriteFile(w.objects, []byte(step.objects), 0o600), until(func() error {
			out, err := w.node.output("ip", "-4", "-o", "addr")
			if err == nil && (strings.Count(out, nodeAddr+"/24") != 1 || !strings.Contains(out, ": "+step.link+" ")) {
				err = fmt.Errorf("%s does not have %s: %s", step.link, nodeAddr, out)
			}
			return err
		}))
		time.Sleep(500 * time.Millisecond)
	}
	if err := errors.Join(err, <-pinged); err != nil {
		return 0, 0, err
	}
	m := regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`).FindSubmatch(text)
	if m == nil {
		return 0, 0, fmt.Errorf("ping said: %s", text)
	}
	sent, _ = strconv.Atoi(string(m[1]))
	got, _ := strconv.Atoi(string(m[2]))
	return sent, sent - got, nil
}
