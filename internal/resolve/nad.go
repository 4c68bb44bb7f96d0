package resolve

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
)

// fromNAD finds the network that an element names.
func (r *resolution) fromNAD(ctx context.Context, e element) (network, error) {
	label := e.namespace + "/" + e.name
	if err := r.allowed(&e); err != nil {
		return network{}, err
	}
	nad, err := r.src.NAD(ctx, e.namespace, e.name)
	if errors.Is(err, core.ErrNotFound) {
		return network{}, &core.Error{
			Code: core.CodeConfig, Msg: e.field + ": NetworkAttachmentDefinition " + label + " does not exist",
			Details: "create it or correct the annotation; `fairlead get nets` lists what exists", Err: core.ErrNotFound,
		}
	}
	if err != nil {
		return network{}, core.WithCode(core.CodeTryAgain, e.field+": NetworkAttachmentDefinition "+label, err)
	}
	chain, err := r.nadChain(nad)
	if err != nil {
		return network{}, core.WithCode(core.CodeConfig, e.field+": NetworkAttachmentDefinition "+label, err)
	}
	n, err := fromChain(chain, e.name+"."+e.namespace+"."+v1.DefaultProvider)
	n.label, n.nad, n.elem, n.resource = label, label, e, nad.Annotations[v1.AnnResourceName]
	return n, err
}

// allowed holds a pod to NADs of its own and of the global namespaces when the
// configuration isolates namespaces. "default" is global unless a list is given.
func (r *resolution) allowed(e *element) error {
	global := r.conf.GlobalNamespaces
	if global == nil {
		global = []string{"default"}
	}
	if !r.conf.NamespaceIsolation || e.namespace == r.pod.Namespace || slices.Contains(global, e.namespace) {
		return nil
	}
	return refused(core.CodeDenied, e.field+".namespace", e.namespace,
		"is neither the pod's namespace nor global, and namespaceIsolation is on")
}

// nadChain reads spec.config, or finds the file of the configuration directory
// whose network has the NAD's name.
func (r *resolution) nadChain(nad *NAD) (core.Chain, error) {
	if strings.TrimSpace(nad.Config) != "" {
		c, err := cniconf.ParseChain([]byte(nad.Config), nad.Name)
		return c, core.WithCode(core.CodeConfig, "spec.config", err)
	}
	dir := r.conf.ConfDir
	if dir == "" {
		dir = defaultConfDir
	}
	var files []ConfFile
	if r.in.ReadConf != nil {
		var err error
		if files, err = r.in.ReadConf(dir); err != nil {
			return core.Chain{}, core.WithCode(core.CodeIO, "spec.config is empty and "+dir+" cannot be read", err)
		}
	}
	if c, ok := r.pickFile(files, nad.Name); ok {
		return c, nil
	}
	return core.Chain{}, core.Errorf(core.CodeConfig, "spec.config is empty and no file in %s has the name %q", dir, nad.Name)
}

// defaultConfDir is Multus' (multinet.md, Configuration).
const defaultConfDir = "/etc/cni/multus/net.d"

// pickFile finds the network called name. A list beats a single configuration
// whatever the order of the files; among equals the first wins. Files that
// cannot be read or understood are not ours to judge here: they are skipped.
func (r *resolution) pickFile(files []ConfFile, name string) (core.Chain, bool) {
	var best core.Chain
	found := false
	for _, f := range files {
		ext := filepath.Ext(f.Name)
		if ext != ".conflist" && ext != ".conf" && ext != ".json" {
			continue
		}
		c, err := core.Chain{}, f.Err
		if err == nil {
			c, err = cniconf.ParseChain(f.Data, "")
		}
		if err != nil {
			r.in.Log.Warn("network configuration file skipped", "file", f.Name, "err", err)
			continue
		}
		if c.Name == name && (!found || (best.Single && !c.Single)) {
			best, found = c, true
		}
	}
	return best, found
}
