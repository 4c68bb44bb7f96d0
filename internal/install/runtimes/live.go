package runtimes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/install/explain"
)

// ErrNone says that nobody speaks CRI on this machine.
var ErrNone = errors.New("no container runtime that speaks CRI was found")

// Sockets are where runtimes usually serve, the one that kubelet is most often
// led to first.
func Sockets() []string {
	return []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/fairlead/cri.sock", "/run/cri-dockerd.sock"}
}

// patience is how long a socket may take to answer when several are tried.
const patience = 5 * time.Second

// Find gives the first of the sockets behind which CRI is spoken: Docker's own
// containerd listens too, and does not. ErrNone.
func Find(ctx context.Context, sockets []string) (string, error) {
	errs := []error{ErrNone}
	for _, s := range sockets {
		if info, err := os.Stat(s); err != nil || info.Mode().Type() != os.ModeSocket {
			continue
		}
		err := speaks(ctx, s)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 1 {
		return "", fmt.Errorf("%w: %s", ErrNone, strings.Join(sockets, ", "))
	}
	return "", errors.Join(errs...)
}

func speaks(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return call(socket, func(service cri.RuntimeServiceClient) error {
		_, err := service.Version(ctx, &cri.VersionRequest{})
		return err
	})
}

// call connects to a runtime, a path or an address of gRPC's, for one function.
func call(socket string, f func(cri.RuntimeServiceClient) error) error {
	address := socket
	if strings.HasPrefix(socket, "/") {
		address = "unix://" + socket
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		defer conn.Close()
		err = f(cri.NewRuntimeServiceClient(conn))
	}
	if err != nil {
		return fmt.Errorf("ask %s: %w", socket, err)
	}
	return nil
}

// Live is what a running runtime says.
type Live struct {
	Dialect explain.Dialect
	Name    string // and version
	Socket  string
	// CNI is the newest version of CNI that it takes, "" where that is not known.
	CNI string
	// Fault is why it runs no containers, the condition RuntimeReady; nil when it
	// does.
	Fault error
	// Ready is the condition NetworkReady, Reason why it is not met.
	Ready  bool
	Reason string
	// Network is what the process works with, nil where it does not tell.
	Network *Network
	// Loaded are the networks that it would attach a pod to by now, with the types
	// of their plugins; Told is false where it does not tell.
	Loaded []Loaded
	Told   bool
}

// Loaded is a network that a runtime has loaded.
type Loaded struct {
	Name  string
	Types []string
}

// Gives tells that pods get a network which runs this plugin, as far as the
// runtime tells: its first one is eth0's.
func (l Live) Gives(plugin string) bool {
	return l.Ready && (!l.Told || len(l.Loaded) > 0 && slices.Contains(l.Loaded[0].Types, plugin))
}

// Why is what keeps pods from a network which runs the plugin; nil when they get
// it.
func (l Live) Why(plugin string) error {
	switch {
	case !l.Ready:
		return fmt.Errorf("%s reports NetworkReady=false: %s", l.Name, l.Reason)
	case l.Gives(plugin):
		return nil
	case len(l.Loaded) == 0:
		return fmt.Errorf("%s has loaded no network", l.Name)
	}
	return fmt.Errorf("%s has loaded the network %q of %s", l.Name, l.Loaded[0].Name, strings.Join(l.Loaded[0].Types, ", "))
}

// Query asks the runtime behind a socket, a path or an endpoint (CRI v1, Version
// and Status).
func Query(ctx context.Context, socket string) (l Live, err error) {
	err = call(socket, func(service cri.RuntimeServiceClient) error {
		v, err := service.Version(ctx, &cri.VersionRequest{})
		if err != nil {
			return err
		}
		s, err := service.Status(ctx, &cri.StatusRequest{Verbose: true})
		if err != nil {
			return err
		}
		d := dialectOf(v.GetRuntimeName(), socket)
		l = Live{Dialect: d, Socket: socket, Name: v.GetRuntimeName() + " " + v.GetRuntimeVersion(), CNI: newestCNI(d, v.GetRuntimeVersion())}
		l.tell(s)
		return nil
	})
	return l, err
}

// tell takes what a verbose status says.
func (l *Live) tell(s *cri.StatusResponse) {
	l.Reason = "it has no condition NetworkReady"
	for _, c := range s.GetStatus().GetConditions() {
		switch c.GetType() {
		case cri.NetworkReady:
			l.Ready, l.Reason = c.GetStatus(), why(c)
		case cri.RuntimeReady:
			l.Fault = unmet(c)
		}
	}
	if l.Ready {
		l.Reason = ""
	}
	if l.Dialect == explain.Containerd {
		l.tellContainerd(s.GetInfo())
	}
}

// Ready is nil when a runtime runs containers and gives pods their network, else
// what it lacks. Other conditions are no obstacle: containerd has one for what it
// deprecates.
func Ready(ctx context.Context, service cri.RuntimeServiceClient) error {
	s, err := service.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return fmt.Errorf("status of the runtime: %w", err)
	}
	for _, c := range s.GetStatus().GetConditions() {
		if err := unmet(c); err != nil && (c.GetType() == cri.RuntimeReady || c.GetType() == cri.NetworkReady) {
			return err
		}
	}
	return nil
}

func unmet(c *cri.RuntimeCondition) error {
	if c.GetStatus() {
		return nil
	}
	return fmt.Errorf("%s is false: %s", c.GetType(), why(c))
}

func why(c *cri.RuntimeCondition) string {
	return strings.TrimSpace(c.GetReason() + ": " + c.GetMessage())
}

// dialectOf goes by the name; docker is what fairlead cri and cri-dockerd say.
func dialectOf(name, socket string) explain.Dialect {
	switch {
	case name == "containerd":
		return explain.Containerd
	case name == "cri-o":
		return explain.CRIO
	case strings.Contains(socket, "cri-dockerd"):
		return explain.Dockershim
	}
	return explain.Fairlead
}

// tellContainerd reads what containerd says in a verbose status. Another version
// may say it otherwise: then it has told nothing.
func (l *Live) tellContainerd(info map[string]string) {
	var config struct {
		CNI struct {
			BinDir     string   `json:"binDir"`
			BinDirs    []string `json:"binDirs"`
			ConfDir    string   `json:"confDir"`
			MaxConfNum int      `json:"maxConfNum"`
		} `json:"cni"`
	}
	if err := json.Unmarshal([]byte(info["config"]), &config); err == nil && config.CNI.ConfDir != "" {
		c := config.CNI
		if len(c.BinDirs) == 0 && c.BinDir != "" {
			c.BinDirs = []string{c.BinDir}
		}
		l.Network = &Network{Settings: explain.Settings{Dir: c.ConfDir, MaxConfNum: c.MaxConfNum, CNI: l.CNI}, BinDirs: c.BinDirs}
	}
	var cni struct {
		Networks []struct {
			Config struct {
				Name    string
				Plugins []struct{ Network struct{ Type string } }
			}
			IFName string
		}
	}
	if err := json.Unmarshal([]byte(info["cniconfig"]), &cni); err != nil {
		return
	}
	l.Told = true
	for _, n := range cni.Networks {
		if n.IFName == "lo" {
			continue
		}
		net := Loaded{Name: n.Config.Name}
		for _, p := range n.Config.Plugins {
			net.Types = append(net.Types, p.Network.Type)
		}
		l.Loaded = append(l.Loaded, net)
	}
	// Why it has loaded nothing says more than that it has not.
	if last := info["lastCNILoadStatus"]; !l.Ready && last != "" && last != "OK" {
		l.Reason = last
	}
}

// Sandboxes are the running pods that have a network namespace of their own, by
// container id.
func Sandboxes(ctx context.Context, socket string) (ids []string, err error) {
	err = call(socket, func(service cri.RuntimeServiceClient) error {
		list, err := service.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
			State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
		}})
		if err != nil {
			return err
		}
		for _, s := range list.GetItems() {
			full, err := service.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
			if err != nil {
				continue // it has ended meanwhile
			}
			if full.GetStatus().GetLinux().GetNamespaces().GetOptions().GetNetwork() == cri.NamespaceMode_POD {
				ids = append(ids, s.GetId())
			}
		}
		return ctx.Err()
	})
	return ids, err
}
