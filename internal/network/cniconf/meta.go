package cniconf

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/internal/core"
)

// logLevels are Multus' (v4.3.0, pkg/logging), which reads them in any case.
var logLevels = []string{"debug", "verbose", "error", "panic"}

// meta reads the keys that a meta-plugin's configuration has beside those of
// every plugin (multinet.md, Configuration). They stand in a CNI configuration
// and in the agent's own file, and mean the same in both.
func (r *reader) meta(c *core.Conf) {
	c.ClusterNetwork = r.source("clusterNetwork", r.text("clusterNetwork"))
	for _, name := range r.texts("defaultNetworks") {
		if name == "" {
			r.refuse("defaultNetworks", "names an empty network")
		}
		c.DefaultNetworks = append(c.DefaultNetworks, r.source("defaultNetworks", name))
	}
	r.delegates(c)
	c.MultusNamespace = r.namespace("multusNamespace", r.text("multusNamespace"))
	r.systemNamespaces(c)
	c.NamespaceIsolation = r.flag("namespaceIsolation")
	r.globals(c)
	if r.has("auxiliaryCNIChainName") && r.text("auxiliaryCNIChainName") != "" {
		c.AuxChain = r.networkName("auxiliaryCNIChainName", "")
	}
	c.ReadinessFile = r.dir("readinessindicatorfile")
	c.ConfDir, c.BinDir, c.CNIDir = r.dir("confDir"), r.dir("binDir"), r.dir("cniDir")
	c.Kubeconfig = r.dir("kubeconfig")
	r.flag("retryDeleteOnError") // a record always stays until its DEL has succeeded
	r.logging()
}

// source checks one value of clusterNetwork or defaultNetworks: what has a '/'
// is a path, as for Multus, so that "namespace/name" is none of its forms.
func (r *reader) source(key, value string) string {
	if strings.Contains(value, "/") && !filepath.IsAbs(value) {
		r.refuse(join(r.path, key), "%q is neither the name of a network nor an absolute path", value)
	}
	return value
}

// delegates reads the networks of a multus-style configuration.
func (r *reader) delegates(c *core.Conf) {
	r.each("delegates", func(path string, raw json.RawMessage) {
		if chain := r.chain(path, raw, ""); *r.err == nil {
			c.Delegates = append(c.Delegates, chain)
		}
	})
	switch {
	case !r.has("delegates"):
	case len(c.Delegates) == 0:
		r.refuse("delegates", "the list is empty")
	case c.ClusterNetwork != "":
		r.refuse("delegates", "clusterNetwork is given too; only one of them can say what the default network is")
	case len(c.DefaultNetworks) > 0:
		r.refuse("defaultNetworks", "delegates is given too; write these networks into it")
	}
}

func (r *reader) namespace(key, value string) string {
	if value != "" && len(validation.IsDNS1123Label(value)) > 0 {
		r.refuse(join(r.path, key), "%q is not a namespace (DNS-1123 label)", value)
	}
	return value
}

// systemNamespaces reads the list; an empty one means that there are none.
func (r *reader) systemNamespaces(c *core.Conf) {
	if !r.has("systemNamespaces") {
		return
	}
	c.SystemNamespaces = []string{}
	for _, ns := range r.texts("systemNamespaces") {
		c.SystemNamespaces = append(c.SystemNamespaces, r.namespace("systemNamespaces", ns))
	}
}

// globals reads the namespaces that isolation exempts. "default" is implied
// only when the list is absent or empty.
func (r *reader) globals(c *core.Conf) {
	for _, ns := range strings.Split(r.text("globalNamespaces"), ",") {
		if ns = strings.TrimSpace(ns); ns != "" {
			c.GlobalNamespaces = append(c.GlobalNamespaces, r.namespace("globalNamespaces", ns))
		}
	}
	if len(c.GlobalNamespaces) == 0 && c.NamespaceIsolation {
		c.GlobalNamespaces = []string{"default"}
	}
}

// logging checks what configures Multus' log. The agent has one log, on its
// standard error, whose level its flags set: the keys are accepted and change
// nothing, but a value that means nothing is refused.
func (r *reader) logging() {
	r.dir("logFile")
	r.flag("logToStderr")
	if level := r.text("logLevel"); level != "" && !slices.Contains(logLevels, strings.ToLower(level)) {
		r.refuse(join(r.path, "logLevel"), "%q is none of %s", level, strings.Join(logLevels, ", "))
	}
	options := r.in("logOptions")
	for _, key := range []string{"maxAge", "maxSize", "maxBackups"} {
		if n := get[int](options, key, "a whole number"); n < 0 {
			r.refuse(join(options.path, key), "%d is negative", n)
		}
	}
	options.flag("compress")
}
