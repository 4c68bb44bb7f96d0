package declare

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// LabelInterconnect of a Node, with value "true", makes it a gateway to the other clusters.
const LabelInterconnect = "ovn.kubernetes.io/ic-gw"

// Ports of the interconnection databases where nothing else is said.
const (
	portICNorth = 6645
	portICSouth = 6646
)

// Interconnect is how this cluster is joined to others (ConfigMap ConfigInterconnect).
type Interconnect struct {
	Zone   string   // this cluster's name among them
	NB, SB string   // the interconnection databases: tcp:ADDRESS:PORT, with commas between
	Nodes  []string // gateway nodes, the first one first
	Routes bool     // networks are told to the others, and theirs are learned
}

// keys of ConfigInterconnect.
const (
	keyICEnable = "enable-ic"
	keyICZone   = "az-name"
	keyICHost   = "ic-db-host"
	keyICNorth  = "ic-nb-port"
	keyICSouth  = "ic-sb-port"
	keyICNodes  = "gw-nodes"
	keyICRoutes = "auto-route"
)

// zoneName is what a zone may be called: its name is part of names in OVN.
var zoneName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// ReadInterconnect reads ConfigInterconnect; nil where it is not enabled. With a fault it is
// not to be used.
func ReadInterconnect(data map[string]string) (*Interconnect, []Fault) {
	r := interconnectReader{data: data}
	if !r.bool(keyICEnable) && len(r.faults) == 0 {
		return nil, nil
	}
	r.out.Routes = r.bool(keyICRoutes)
	if r.out.Zone = data[keyICZone]; r.out.Zone == "" {
		r.refuse(keyICZone, "is missing: the name of this cluster among the others, which no other has")
	} else if !zoneName.MatchString(r.out.Zone) {
		r.refuse(keyICZone, "%q is not a name of at most 63 letters, digits, dots, dashes and underscores", r.out.Zone)
	}
	r.databases()
	for _, node := range split(data[keyICNodes]) {
		if len(validation.IsDNS1123Subdomain(node)) > 0 {
			r.refuse(keyICNodes, "%q is not a node's name", node)
		} else if !slices.Contains(r.out.Nodes, node) {
			r.out.Nodes = append(r.out.Nodes, node)
		}
	}
	return &r.out, r.faults
}

// IsGateway tells that a node with such labels is one of the gateways.
func (i Interconnect) IsGateway(node string, labels map[string]string) bool {
	return slices.Contains(i.Nodes, node) || labels[LabelInterconnect] == "true"
}

type interconnectReader struct {
	data   map[string]string
	out    Interconnect
	faults []Fault
}

func (r *interconnectReader) refuse(key, format string, args ...any) {
	r.faults = append(r.faults, Fault{"data." + key, fmt.Sprintf(format, args...)})
}

// bool reads true or false, which nothing is.
func (r *interconnectReader) bool(key string) bool {
	switch text := r.data[key]; text {
	case "true":
		return true
	case "", "false":
	default:
		r.refuse(key, "%q is neither true nor false", text)
	}
	return false
}

// databases reads where the databases are.
func (r *interconnectReader) databases() {
	var nb, sb []string
	north, south := r.port(keyICNorth, portICNorth), r.port(keyICSouth, portICSouth)
	for _, text := range split(r.data[keyICHost]) {
		if strings.HasPrefix(text, "ssl:") {
			r.refuse(keyICHost, "%q: the interconnection databases are reached by tcp, without ssl: in front", text)
			continue
		}
		host, err := netip.ParseAddr(strings.Trim(text, "[]"))
		if err != nil {
			r.refuse(keyICHost, "%q is not an address", text)
			continue
		}
		nb = append(nb, "tcp:"+net.JoinHostPort(host.String(), north))
		sb = append(sb, "tcp:"+net.JoinHostPort(host.String(), south))
	}
	if r.data[keyICHost] == "" {
		r.refuse(keyICHost, "is missing: the address of the interconnection databases")
	}
	r.out.NB, r.out.SB = strings.Join(nb, ","), strings.Join(sb, ",")
}

func (r *interconnectReader) port(key string, usual int) string {
	text := r.data[key]
	if text == "" {
		return strconv.Itoa(usual)
	}
	if n, err := strconv.ParseUint(text, 10, 16); err != nil || n == 0 {
		r.refuse(key, "%q is not a port", text)
	}
	return text
}
