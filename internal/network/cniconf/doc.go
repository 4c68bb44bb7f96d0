// Package cniconf reads and writes what CNI puts on the wire: network
// configurations and lists, CNI_ARGS, results in every version from 0.1.0 to
// 1.1.0, error objects and the entries of a network-status annotation. It is
// pure: it touches no file, kernel or process, and decides nothing about which
// networks a pod gets. Conversion and version negotiation are left to
// containernetworking/cni. Every refusal is a *core.Error whose message names
// the key.
//
// Sources: CNI spec 1.1, NPWG multi-network de-facto standard v1.3,
// spec/multinet.md "Configuration", spec/sdn.md section 1.
package cniconf

import "github.com/containernetworking/cni/pkg/version"

// The versions at which CNI gained what we ask of plugins.
const (
	versionNone  = "0.1.0" // what an absent cniVersion means
	versionCheck = "0.4.0" // CHECK, and prevResult on DEL
	versionGC    = "1.1.0" // GC and STATUS
)

// Supported lists the CNI versions that we serve, oldest first.
func Supported() []string { return version.All.SupportedVersions() }

// HasCheck tells that version v knows CHECK and gives prevResult to DEL.
func HasCheck(v string) bool { return atLeast(v, versionCheck) }

// HasGC tells that version v knows GC and STATUS.
func HasGC(v string) bool { return atLeast(v, versionGC) }

func atLeast(v, floor string) bool {
	ok, err := version.GreaterThanOrEqualTo(v, floor)
	return err == nil && ok
}
