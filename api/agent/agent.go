// Package agent is the operator's API of the node agent: JSON over HTTP/1.1 on
// the agent's unix socket, which only root can open. The command line prints
// these values with -o json and -o yaml as they stand, so that a name, once
// published, stays; new keys may be added. It holds types and small tables
// only and knows neither the agent's insides nor the command line.
//
// Conventions. Keys are camelCase. Durations are milliseconds (keys end in Ms)
// or seconds (Seconds) as numbers; instants are RFC 3339. Rates are Mbit/s,
// bursts Mbit, MTU bytes. Addresses are text in canonical form (RFC 5952 for
// IPv6). An absent key means none or zero. Lists come in a stable order: pods
// by namespace and name, attachments by container and interface, interfaces in
// the order they were made, subnets and networks by name, addresses by value.
//
// A failure has a status that is not 2xx and an Error as its body.
package agent

import (
	"fmt"
	"net/url"
)

// Paths of the API; others stand with their types. The ones that end in a slash are followed by what their
// function (PodPath, IPPath, CheckPath) appends.
const (
	PathPods    = "/v1/pods"    // GET: PodList; ?namespace= limits it
	PathPod     = "/v1/pods/"   // GET {namespace}/{name}: Pod
	PathNets    = "/v1/nets"    // GET: NetList
	PathSubnets = "/v1/subnets" // GET: SubnetList
	PathIPs     = "/v1/ips"     // GET: IPList
	PathIP      = "/v1/ips/"    // GET {address}: Who
	PathStatus  = "/v1/status"  // GET: Status
	PathGC      = "/v1/gc"      // POST: GCResult; GET: the same of what a POST would do
	PathCheck   = "/v1/check/"  // POST {namespace}/{name}: CheckResult
	PathMetrics = "/metrics"    // GET: Prometheus text format, the same as on --http

	// QueryNamespace limits PathPods and PathIPs to one namespace.
	QueryNamespace = "namespace"
)

// PodPath is the path that describes one pod.
func PodPath(namespace, name string) string {
	return PathPod + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// CheckPath is the path that checks one pod.
func CheckPath(namespace, name string) string {
	return PathCheck + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// IPPath is the path that tells who holds an address.
func IPPath(addr string) string { return PathIP + url.PathEscape(addr) }

// Error is the body of every failure. Code is from the table of api/cni; Msg
// says what failed, Details why, Hint what to do next. HTTP statuses: 400 the
// request is wrong, 404 the thing named does not exist, 503 a server that the
// agent needs cannot be reached, 500 anything else.
type Error struct {
	Code    uint   `json:"code"`
	Msg     string `json:"msg"`
	Details string `json:"details,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// Error is one line: what failed and why.
func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return fmt.Sprintf("%s: %s", e.Msg, e.Details)
}

// hints is what an operator should do next, by error code (table of api/cni).
var hints = map[uint]string{
	1:   "use a cniVersion between 0.1.0 and 1.1.0 in the network configuration",
	2:   "remove the field named above from the network configuration",
	3:   "nothing is recorded under this name; `fairlead get pods` lists what is",
	4:   "correct the variable named above; a runtime sets CNI_CONTAINERID, CNI_NETNS and CNI_IFNAME",
	5:   "see `fairlead doctor` for disk space and permissions, then retry",
	6:   "the JSON above is not readable; correct it and retry",
	7:   "correct the key named above in the network configuration or the NetworkAttachmentDefinition",
	8:   "the container is gone or its namespace path is wrong; a new sandbox gets a new namespace",
	11:  "retry; if it stays, `fairlead status` says what the agent waits for",
	50:  "`fairlead status` says what is not ready, `fairlead doctor` how to repair it",
	51:  "`fairlead status` says what is limited, `fairlead doctor` how to repair it",
	101: "ask who administers the policy, or leave the request out",
	102: "correct the annotation or value named above and create the pod again",
	103: "`fairlead get subnets` shows what is free, `fairlead ip who ADDR` who holds an address",
	104: "`fairlead doctor` shows which devices this machine has",
	105: "`fairlead get pods -o wide` shows the attachment that is in the way; DEL it first",
	106: "`fairlead check NS/NAME` lists what differs; repair it by hand, or create the pod again",
	999: "this failure has no code, which is a defect: send it with `fairlead support-bundle`",
}

// Hint is the next step for an error code, "" for a code that is not ours.
func Hint(code uint) string { return hints[code] }
