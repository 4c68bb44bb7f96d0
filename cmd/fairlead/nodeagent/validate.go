package nodeagent

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/agent"
	"github.com/fairlead/fairlead/internal/lib/hint"
)

// What a CertificateSigningRequest may ask for (certificates.k8s.io/v1), and
// what its number of seconds can say.
const (
	minCertDuration = 10 * time.Minute
	maxCertDuration = 10 * 365 * 24 * time.Hour
)

// validate refuses flags that cannot work, before anything is opened.
func validate(c agent.Config) error {
	var errs []error
	if c.MTU != 0 && (c.MTU < 576 || c.MTU > 65535) {
		errs = append(errs, hint.Usagef("--mtu %d is not between 576 and 65535", c.MTU))
	}
	if c.Bridge == "" || len(c.Bridge) > 15 {
		errs = append(errs, hint.Usagef("--bridge %q is not an interface name", c.Bridge))
	}
	if c.Socket == "" {
		errs = append(errs, hint.Usagef("--socket is empty; the default is %s", cni.DefaultSocket))
	}
	return errors.Join(slices.Concat(errs, validateOVN(c), validateConf(c), validateSource(c), c.Filter.Check())...)
}

// validateOVN is about OVN's part of the node.
func validateOVN(c agent.Config) []error {
	var errs []error
	if c.OVN && !c.Alone() && c.Kubeconfig == "" && c.Bootstrap == "" && !c.InCluster {
		errs = append(errs, hint.Usagef("--ovn takes pods' networks from a folder or an API server: give --objects, --kubeconfig or --bootstrap-kubeconfig"))
	}
	if c.Chassis.TLS() && c.Alone() {
		errs = append(errs, hint.Usagef("--ovn-remote ssl:… takes a certificate of a cluster's controller, which --objects has not"))
	}
	return append(errs, c.Chassis.Check(c.OVN)...)
}

// validateConf is about the runtime's configuration.
func validateConf(c agent.Config) []error {
	var errs []error
	if c.CNIConf != agent.ConfOff && c.CNIConf != agent.ConfAuto && !filepath.IsAbs(c.CNIConf) {
		errs = append(errs, hint.Usagef("--cni-conf %q is neither auto, off nor an absolute path", c.CNIConf))
	}
	if c.CNIMaster != "" && c.CNIConf != agent.ConfAuto {
		errs = append(errs, hint.Usagef("--cni-master goes with --cni-conf auto"))
	}
	if c.CNIMaster != filepath.Base(c.CNIMaster) && c.CNIMaster != "" {
		errs = append(errs, hint.Usagef("--cni-master %q is a file's name, without its folder", c.CNIMaster))
	}
	return errs
}

// validateSource refuses flags that contradict each other about the source.
func validateSource(c agent.Config) []error {
	var errs []error
	if c.Objects != "" && (c.Kubeconfig != "" || c.Bootstrap != "") {
		errs = append(errs, hint.Usagef("--objects serves without a cluster: leave out --kubeconfig and --bootstrap-kubeconfig"))
	}
	if c.Kubeconfig != "" && c.Bootstrap != "" {
		errs = append(errs, hint.Usagef("--bootstrap-kubeconfig replaces --kubeconfig: give one of them"))
	}
	if c.CertDuration < minCertDuration || c.CertDuration > maxCertDuration {
		errs = append(errs, hint.Usagef("--cert-duration %s is not between %s and %s", c.CertDuration, minCertDuration, maxCertDuration))
	}
	if c.NodeName == "" {
		errs = append(errs, hint.Usagef("--node-name is empty"))
	}
	return errs
}
