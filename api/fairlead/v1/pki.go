package v1

// Signers whose CertificateSigningRequests Fairlead's controller approves and
// signs. Each has a CA of its own: an ovsdb-server trusts one CA for all that it
// listens on, and a chassis' certificate must open nothing but the port for
// chassis.
const (
	// SignerChassis signs a chassis: common name = node = the chassis' system-id,
	// organization OrganizationChassis, usages "digital signature" and "client
	// auth", no alternative names. The requester's token must be bound to that
	// node: ExtraNodeName of the request's spec.extra equals the common name. It is a
	// service account's of Fairlead's namespace.
	SignerChassis = "fairlead.io/chassis"

	// SignerCentral signs the members of OVN's central part, northd and controllers:
	// organization OrganizationCentral, usages "digital signature", "server auth"
	// and "client auth". The requester is service account CentralAccount or
	// ControllerAccount.
	SignerCentral = "fairlead.io/central"
)

// What the subject of a certificate says beside its common name.
const (
	OrganizationChassis = "fairlead:chassis"
	OrganizationCentral = "fairlead:central"
)

// ExtraNodeName is the key of a request's spec.extra under which the API server
// tells the node that the requester's token is bound to (KEP-4193).
const ExtraNodeName = "authentication.kubernetes.io/node-name"

// Service accounts, in Fairlead's namespace, of OVN's central part and of the
// controllers.
const (
	CentralAccount    = "fairlead-central"
	ControllerAccount = "fairlead-controller"
)

// AnnReplaceCA on Secret CAName asks for another CA: "central" or "chassis". The
// controller takes it away when the next CA is made.
const AnnReplaceCA = "fairlead.io/replace-ca"

// ControllerLease is the name of the Lease, in Fairlead's namespace, of the controller
// that leads.
const ControllerLease = "fairlead-controller"

// CAName is the name of three objects in Fairlead's namespace: the Secret with the
// two CAs and their keys, the ConfigMap with the certificates that others trust,
// and the Lease of the controller that keeps them.
const CAName = "fairlead-ca"

// CentralName is the name of the ConfigMap in Fairlead's namespace that says which
// clusters of databases have begun: a key for each, with the cluster's id.
const CentralName = "fairlead-central"

// RestoreDir is the folder, within that of a member of central, from which it begins the
// databases anew: nb.db and sb.db, each a database for itself, or an empty file for one
// with nothing in it. A folder that lacks one of them begins nothing.
const RestoreDir = "restore"

// Keys of the ConfigMap CAName; both are PEM, with the former CA and the next one
// beside the current one while a CA is being replaced.
const (
	BundleCentral = "central.crt" // whom chassis, controllers and central's members trust as a server
	BundleChassis = "chassis.crt" // whom central's port for chassis lets in
)

// TCP ports of one member of OVN's central part.
const (
	PortNB      = 6641 // northbound database, for certificates of SignerCentral
	PortChassis = 6642 // southbound database for chassis, by role: certificates of SignerChassis
	PortNBRaft  = 6643
	PortSBRaft  = 6644
	PortSB      = 6645 // southbound database without role, for certificates of SignerCentral
)
