package deviceplugin

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pb "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
)

// Budget is the end of the name of the resource that counts what a resource's functions
// can be promised, in units of BudgetUnit Mbit/s.
const (
	Budget     = "-min-rate"
	BudgetUnit = 100
)

// devices are what kubelet is told of a resource, and of its budget, by name.
func (m *Manager) devices(r vfpolicy.Resource) map[string][]*pb.Device {
	out := map[string][]*pb.Device{r.Name: m.functions(r)}
	if r.Slot {
		out[r.Name] = m.places(r)
	}
	if units := m.units(r); units != nil {
		out[r.Name+Budget] = units
	}
	return out
}

func tell(id string, healthy bool, numa int) *pb.Device {
	d := &pb.Device{ID: id, Health: pb.Unhealthy}
	if healthy {
		d.Health = pb.Healthy
	}
	if numa >= 0 {
		d.Topology = &pb.TopologyInfo{Nodes: []*pb.NUMANode{{ID: int64(numa)}}}
	}
	return d
}

// numa is the node of a function as kubelet is to know it.
func numa(p *vfpolicy.Policy, f vfpolicy.Function) int {
	if p.Spec.ExcludeTopology {
		return -1
	}
	return f.NUMA
}

func (m *Manager) functions(r vfpolicy.Resource) (out []*pb.Device) {
	for _, f := range r.Functions {
		out = append(out, tell(f.PCI, m.seen.sick[f.PCI] == "", numa(r.Of[f.PCI], f)))
	}
	return out
}

// places are slots. One that a pod has is what its function is; of the others so many are
// healthy as healthy functions are free.
func (m *Manager) places(r vfpolicy.Resource) (out []*pb.Device) {
	free := map[int]int{}
	for _, f := range r.Functions {
		if _, given := m.seen.given[f.PCI]; !given && m.seen.sick[f.PCI] == "" {
			free[f.NUMA]++
		}
	}
	taken := map[string]string{}
	for key, g := range m.book {
		if g.Resource == r.Name && m.seen.alive(keyOf(key)) {
			taken[g.ID] = g.PCI
		}
	}
	for i, place := range r.Places() {
		pci, is := taken[place.ID]
		healthy := is && m.seen.sick[pci] == ""
		if !is && free[place.NUMA] > 0 {
			free[place.NUMA]--
			healthy = true
		}
		out = append(out, tell(place.ID, healthy, numa(r.Of[r.Functions[i].PCI], r.Functions[i])))
	}
	return out
}

// units are those of the budget, nil for a resource without one.
func (m *Manager) units(r vfpolicy.Resource) (out []*pb.Device) {
	said := map[string]bool{}
	for _, f := range r.Functions {
		p := r.Of[f.PCI]
		if p.Spec.MinRateBudgetPercent == 0 || said[f.PF] {
			continue
		}
		said[f.PF] = true
		for n := range m.budget(p, f.PF) / BudgetUnit {
			out = append(out, tell(f.PF+"-"+strconv.Itoa(n), true, numa(p, f)))
		}
	}
	if len(said) > 0 && out == nil {
		out = []*pb.Device{} // it is there, and has nothing to give
	}
	return out
}

// budget is what a PF can promise, Mbit/s.
func (m *Manager) budget(p *vfpolicy.Policy, pf string) int {
	at := slices.IndexFunc(m.seen.cards, func(c vfpolicy.PF) bool { return c.Name == pf })
	if at < 0 {
		return 0
	}
	return m.seen.cards[at].Mbps * p.Spec.MinRateBudgetPercent / 100
}

func (m *Manager) resource(name string) (vfpolicy.Resource, bool) {
	for _, r := range m.seen.plan.Resources {
		if r.Name == name {
			return r, true
		}
	}
	return vfpolicy.Resource{}, false
}

// prefer answers GetPreferredAllocation.
func (m *Manager) prefer(name string, available, must []string, size int) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, _ := m.resource(name)
	place := map[string]vfpolicy.Function{}
	for i, p := range r.Places() {
		place[r.Functions[i].PCI] = r.Functions[i]
		place[p.ID] = vfpolicy.Function{NUMA: p.NUMA}
	}
	return vfpolicy.Prefer(available, must, size, func(id string) (int, string) { return place[id].NUMA, place[id].PF })
}

// allocate answers Allocate for one container.
func (m *Manager) allocate(name string, ids []string) (*pb.ContainerAllocateResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, is := m.resource(name)
	if !is {
		if _, is = m.resource(strings.TrimSuffix(name, Budget)); is && strings.HasSuffix(name, Budget) {
			return &pb.ContainerAllocateResponse{}, nil // a number, and nothing to be had
		}
		return nil, status.Errorf(codes.NotFound, "resource %s is not given here any more", name)
	}
	out := &pb.ContainerAllocateResponse{Envs: map[string]string{}}
	if r.Slot {
		if len(r.Functions) > 0 && r.Of[r.Functions[0].PCI].Spec.NeedVhostNet {
			out.Devices = nodes(vhostNet...)
		}
		return out, nil
	}
	known := map[string]information{}
	for _, id := range ids {
		at := slices.IndexFunc(r.Functions, func(f vfpolicy.Function) bool { return f.PCI == id })
		if at < 0 {
			return nil, status.Errorf(codes.NotFound, "resource %s has no virtual function %s", name, id)
		}
		if why := m.seen.sick[id]; why != "" {
			return nil, status.Errorf(codes.FailedPrecondition, "virtual function %s: %s", id, why)
		}
		f, p := r.Functions[at], r.Of[id]
		known[id] = m.inform(p, f)
		m.nodesOf(out, name, p, f)
	}
	out.Envs[variable(name)] = strings.Join(ids, ",")
	text, err := json.Marshal(known)
	if err != nil {
		return nil, err
	}
	out.Envs[variable(name)+"_INFO"] = string(text)
	return out, nil
}

// variable is the name that programs look for.
func variable(resource string) string {
	return "PCIDEVICE_" + strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' {
			return c - 'a' + 'A'
		}
		if c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, resource)
}

// information is what programs find in PCIDEVICE_..._INFO of a function.
type information struct {
	Generic map[string]string `json:"generic"`
	VFIO    map[string]string `json:"vfio,omitempty"`
	Vhost   map[string]string `json:"vhost,omitempty"`
}

var vhostNet = []string{"/dev/vhost-net", "/dev/net/tun"}

func (m *Manager) inform(p *vfpolicy.Policy, f vfpolicy.Function) information {
	out := information{Generic: map[string]string{"deviceID": f.PCI}}
	if f.Driver == sriov.DriverVFIO {
		out.VFIO = map[string]string{"mount": "/dev/vfio/vfio", "dev-mount": "/dev/vfio/" + f.IOMMUGroup}
	}
	if p.Spec.NeedVhostNet {
		out.Vhost = map[string]string{"net-mount": vhostNet[0], "tun-mount": vhostNet[1]}
	}
	return out
}

// paths are the device nodes of a function.
func (m *Manager) paths(p *vfpolicy.Policy, f vfpolicy.Function) (out []string) {
	if f.Driver == sriov.DriverVFIO {
		out = append(out, "/dev/vfio/vfio", "/dev/vfio/"+f.IOMMUGroup)
	}
	if p.Spec.NeedVhostNet {
		out = append(out, vhostNet...)
	}
	if p.RDMA() {
		out = append(out, f.RDMANodes...)
	}
	return out
}

// nodesOf puts the device nodes of a function into an answer, by CDI where it is wanted.
func (m *Manager) nodesOf(out *pb.ContainerAllocateResponse, resource string, p *vfpolicy.Policy, f vfpolicy.Function) {
	paths := m.paths(p, f)
	switch {
	case len(paths) == 0:
	case m.cfg.CDIDir != "":
		out.CdiDevices = append(out.CdiDevices, &pb.CDIDevice{Name: fmt.Sprintf("%s=%s", resource, f.PCI)})
	default:
		for _, d := range nodes(paths...) {
			if !slices.ContainsFunc(out.Devices, func(have *pb.DeviceSpec) bool { return have.GetHostPath() == d.GetHostPath() }) {
				out.Devices = append(out.Devices, d)
			}
		}
	}
}

func nodes(paths ...string) (out []*pb.DeviceSpec) {
	for _, p := range paths {
		out = append(out, &pb.DeviceSpec{ContainerPath: filepath.Clean(p), HostPath: p, Permissions: "rw"})
	}
	return out
}
