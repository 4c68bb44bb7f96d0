package deviceplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/network/record"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
	"github.com/fairlead/fairlead/internal/source/device"
)

// Flags are those of the agent about virtual functions.
type Flags struct {
	// List is a resourceList file, CDIDir the folder of CDI's specifications; "" for none.
	List, CDIDir string
}

// Node is an agent, as its device plugin sees it.
type Node struct {
	Flags

	Name        string // of the node
	KubeletRoot string
	Kubelet     *device.Kubelet
	Journal     *journal.Journal
	TryLock     func(container string) (unlock func(), ok bool)
	Cleaner     Cleaner
	Source      Source
	Report      func([]Report)
	Log         *slog.Logger
}

// Report is what became of a policy.
type Report = vfpolicy.Report

// Source tells which policies are declared.
type Source interface {
	// VFPolicies may leave out what means other nodes; core.ErrUnavailable while it is not
	// known.
	VFPolicies() ([]vfpolicy.Policy, error)
}

// bookFile ends with the machine, as functions do.
const bookFile = "/run/fairlead/vf-places.json"

// Devices are what pods are given, and what that stands for.
type Devices struct {
	*device.Kubelet
	*Manager
}

var (
	_ resolve.Devices = Devices{}
	_ resolve.Chooser = Devices{}
)

// For makes the Manager of a node.
func For(n Node) *Manager {
	held := &held{journal: n.Journal, of: map[core.Key]attached{}}
	return New(Config{
		Dir: filepath.Join(n.KubeletRoot, "device-plugins"), Kubelet: n.Kubelet, Sys: sriov.At(""),
		Policies: n.policies, Report: n.Report, Cleaner: n.Cleaner, Held: held.devices, Pod: n.pod, Living: n.living,
		Book: bookFile, InfoDir: resolve.DevInfoDir, CDIDir: n.CDIDir, Log: n.Log,
	})
}

// nameLabel is the one that also a node without an object has.
const nameLabel = "kubernetes.io/hostname"

// policies are the declared ones that mean the node, and those of the file.
func (n Node) policies() ([]vfpolicy.Policy, error) {
	all, err := n.Source.VFPolicies()
	out := slices.DeleteFunc(all, func(p vfpolicy.Policy) bool { return !p.Means(map[string]string{nameLabel: n.Name}) })
	if err != nil || n.List == "" {
		return out, err
	}
	text, err := hostfile.Read(n.List, hostfile.Limit)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	var listed []vfpolicy.Policy
	if err == nil {
		listed, err = vfpolicy.ReadList(text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.List, err)
	}
	return append(out, listed...), nil
}

func (n Node) pod(k core.Key) core.Pod {
	for _, h := range n.Journal.Heads() {
		if h.Key.Container == k.Container {
			return h.Pod
		}
	}
	return core.Pod{}
}

// living tells, by the records of this moment, whether an attachment may go on: its
// container has one, or somebody works on it. An orphan's has ended, whoever works on what
// is left of it.
func (n Node) living() func(core.Key) bool {
	recorded := map[string]bool{} // false: of orphans alone
	for _, h := range n.Journal.Heads() {
		recorded[h.Key.Container] = recorded[h.Key.Container] || !h.Orphan
	}
	return func(k core.Key) bool {
		if goesOn, is := recorded[k.Container]; is {
			return goesOn
		}
		unlock, ok := n.TryLock(k.Container)
		if ok {
			unlock()
		}
		return !ok
	}
}

// held remembers which devices records have: each is read once, and again when it changes.
type held struct {
	journal *journal.Journal
	of      map[core.Key]attached
}

type attached struct {
	nets, parts int
	called      core.Moment
	devices     map[string]core.Key
}

var pci = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]$`)

// devices are the attachments by the PCI addresses of their devices.
func (h *held) devices() map[string]core.Key {
	out, next := map[string]core.Key{}, map[core.Key]attached{}
	for _, head := range h.journal.Heads() {
		a, is := h.of[head.Key]
		if !is || a.nets != len(head.Statuses) || a.parts != head.Parts || a.called != head.Called {
			a = attached{nets: len(head.Statuses), parts: head.Parts, called: head.Called}
			if rec, is := h.journal.Get(head.Key); is {
				a.devices = record.Devices(rec)
			}
		}
		next[head.Key] = a
		for id, key := range a.devices {
			if pci.MatchString(id) {
				out[id] = key
			}
		}
	}
	h.of = next
	return out
}
