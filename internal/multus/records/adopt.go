package records

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// ErrUnfit says that a record of Multus cannot become one of our own. Nothing
// is lost with it: DEL goes by Multus' files.
var ErrUnfit = errors.New("cannot be taken into the journal")

// Pod is the pod that the container's plugins were told of (CNI_ARGS).
func (l *Left) Pod() core.Pod {
	for _, s := range l.Specs {
		args, err := cniconf.ParseArgs(s.Exec.Args)
		if err == nil && args["K8S_POD_NAME"] != "" {
			return core.Pod{Namespace: args["K8S_POD_NAMESPACE"], Name: args["K8S_POD_NAME"], UID: args["K8S_POD_UID"]}
		}
	}
	return core.Pod{}
}

// Fit is nil when Record can be made of l, else it wraps ErrUnfit and says what
// is missing. Neither the kernel nor the journal is looked at.
func (l *Left) Fit() error {
	switch {
	case len(l.Own) > 0:
		return fmt.Errorf("%w: Multus had Fairlead as a delegate, whose record is the journal's own", ErrUnfit)
	case len(l.Lost) > 0:
		return fmt.Errorf("%w: libcni's result of network %s is lost", ErrUnfit, strings.Join(l.Lost, ", "))
	case l.Netns == "":
		return fmt.Errorf("%w: its network namespace is not known", ErrUnfit)
	case len(l.Specs) == 0:
		return fmt.Errorf("%w: it names no plugin", ErrUnfit)
	}
	return nil
}

// Record is the record that our own ADD of the same networks would have left,
// as far as Multus knows them; l is Fit. The runtime's network is called
// network, its interface key, and its namespace ns. What the pod's annotation
// says has no part in it: its networks stay what they are.
func (l *Left) Record(key core.Key, network string, ns core.Netns) core.Record {
	rec := core.Record{
		Key: key, Network: network, Pod: l.Pod(), Netns: ns, Phase: core.Added, Delivered: true, FormerFiles: l.Files,
	}
	if info, err := os.Stat(l.Files[0]); err == nil {
		rec.Created = info.ModTime().UTC()
	}
	for _, s := range l.Specs {
		s.Pod, s.Netns = rec.Pod, ns
		link, err := cniconf.LinkFromResult(s.Exec.Prev, s.Key.IfName)
		if err != nil { // it made no interface of this name
			link = core.Link{IfName: s.Key.IfName, CNIResult: s.Exec.Prev}
		}
		rec.Specs, rec.Links = append(rec.Specs, s), append(rec.Links, link)
	}
	rec.Begun = len(rec.Specs)
	return rec
}

// Inherited tells a record that was Multus': its files go with it.
func Inherited(r core.Record) bool { return r.Phase == core.Added && len(r.FormerFiles) > 0 }

// There is nil when the interfaces of a record are in its namespace. A path
// outlives its namespace: what stands there by now may be another container's,
// which must not be detached for this one.
func There(r core.Record) error {
	ns, err := netns.Verify(r.Netns)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	c, err := rtnl.Open(ns)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	for _, l := range r.Links {
		if len(l.MAC) == 0 {
			continue // only addresses, or settings of another network's interface
		}
		have, err := c.LinkByName(l.IfName)
		if err == nil && !bytes.Equal(have.MAC, l.MAC) {
			err = fmt.Errorf("interface %s has MAC %s, not %s", l.IfName, have.MAC, l.MAC)
		}
		if err != nil {
			return fmt.Errorf("%w: what is at %s is not what Multus attached: %w", ErrUnfit, r.Netns.Path, err)
		}
	}
	return nil
}
