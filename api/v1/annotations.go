package v1

// Annotations of NPWG (multi-network standard v1.3, sections 4.1 and 3.2).
const (
	AnnNetworks     = "k8s.v1.cni.cncf.io/networks"
	AnnStatus       = "k8s.v1.cni.cncf.io/network-status"
	AnnResourceName = "k8s.v1.cni.cncf.io/resourceName" // on a NAD
)

// AnnDefaultNetwork replaces a pod's default network by a NAD (Multus).
const AnnDefaultNetwork = "v1.multus-cni.io/default-network"

// AnnChassis of a Node is its chassis' name in OVN (sdn.md, 0).
const AnnChassis = "ovn.kubernetes.io/chassis"

// NetworkMTU is the end of a Node's label with the MTU of a provider network's NIC, in
// bytes; its begin is the network's name.
const NetworkMTU = ".provider-network.kubernetes.io/mtu"

// AnnNodeIPs of a Node are its addresses of type InternalIP, comma-separated, of
// which a controller tells the agents of the other nodes.
const AnnNodeIPs = "fairlead.io/node-ips"

// AnnNoAddress of a pod is why a controller has given it no address, for people and for
// the agent's answer; it goes when the pod has one.
const AnnNoAddress = "fairlead.io/no-address"

// AnnAllocate is on a Subnet and says who gives its addresses where no controller
// does: "" leaves it to one node alone, AllocateNodeBlock has each node give those
// of its own node.spec.podCIDRs inside cidrBlock.
const (
	AnnAllocate       = "fairlead.io/allocate"
	AllocateNodeBlock = "node-block"
)

// AnnShown is on a Subnet that declares nothing: a controller made it to show a network
// that no object declares. It has the spec that was written, as JSON; who changes that
// declares the Subnet.
const AnnShown = "fairlead.io/shown"

// AnnPortSecurity of a pod or a Subnet is "false" where NICs may send from any
// address.
const AnnPortSecurity = DefaultProvider + ProviderSuffix + FieldPortSecurity

// Rates that Kubernetes itself defines, as resource quantities in bit/s;
// ingress is towards the pod.
const (
	AnnIngressBandwidth = "kubernetes.io/ingress-bandwidth"
	AnnEgressBandwidth  = "kubernetes.io/egress-bandwidth"
)

// ProviderSuffix stands between a provider and a field in an annotation key:
// "ovn" + ProviderSuffix + FieldIP is ovn.kubernetes.io/ip_address.
const ProviderSuffix = ".kubernetes.io/"

// Fields of a NIC's annotations (spec/sdn.md, section 3). Comma-separated pairs
// are dual stack.
const (
	FieldIP              = "ip_address"
	FieldIPPool          = "ip_pool"   // "a;b" or "a,b"; elements of "a;b" may be pairs
	FieldFamily          = "ip_family" // of a Subnet of both: FamilyIPv4 or FamilyIPv6
	FieldMAC             = "mac_address"
	FieldCIDR            = "cidr"
	FieldGateway         = "gateway"
	FieldSubnet          = "logical_switch"
	FieldRoutes          = "routes" // JSON [{"dst": "10.0.0.0/8", "gw": "10.16.0.1"}]
	FieldAllocated       = "allocated"
	FieldRouted          = "routed"
	FieldIngressRate     = "ingress_rate"  // Mbit/s towards the pod
	FieldEgressRate      = "egress_rate"   // Mbit/s from the pod
	FieldIngressBurst    = "ingress_burst" // Mbit
	FieldEgressBurst     = "egress_burst"  // Mbit
	FieldLatency         = "latency"       // ms
	FieldJitter          = "jitter"        // ms
	FieldLimit           = "limit"         // packets
	FieldLoss            = "loss"          // percent
	FieldMirror          = "mirror"
	FieldPortSecurity    = "port_security"   // also of a Subnet
	FieldPortVIPs        = "port_vips"       // addresses that pass besides
	FieldSecurityGroups  = "security_groups" // "a,b": SecurityGroups, whose rules count
	FieldVip             = "vip"             // a Vip, whose address is the NIC's own
	FieldAAPs            = "aaps"            // "a,b": Vips, whose addresses pass besides
	ExternalEIP          = "eip"             // of the external gateway: the pod's own address outside
	ExternalSNAT         = "snat"            // of the same: an address outside that pods may share
	FieldVLAN            = "vlan_id"
	FieldNICType         = "pod_nic_type"
	FieldDefaultRoute    = "default_route"
	FieldProviderNetwork = "provider_network"
	FieldNetworkType     = "network_type"
	FieldDeclared        = "declared"       // NETWORK@INTERFACE of one that a PodNetwork alone named when the pod was served
	FieldMachine         = "virtualmachine" // that a launcher pod of KubeVirt runs: ports are named after it
)

// Values of FieldFamily.
const (
	FamilyIPv4 = "ipv4"
	FamilyIPv6 = "ipv6"
)

// Values of FieldNICType that Fairlead makes.
const (
	NICVeth     = "veth-pair"
	NICInternal = "internal-port"
)

// Finalizer is on objects that Kube-OVN's controller has in hand. Fairlead's have none:
// what nobody takes off keeps an object for ever.
const Finalizer = "kubeovn.io/kube-ovn-controller"
