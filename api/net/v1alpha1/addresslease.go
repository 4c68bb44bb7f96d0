package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Phases of an AddressLease.
const (
	LeaseReserved  = "Reserved"  // declared, and nobody's now
	LeaseBound     = "Bound"     // the holder has it
	LeaseReleasing = "Releasing" // nobody's, and about to be deleted
	LeaseConflict  = "Conflict"  // somebody else has the address, or says so: the reason tells which
)

// Annotations of an AddressLease that was taken from its holder by hand: by whom, why,
// from whom and when. They stay until it is taken the next time.
const (
	AnnStolenBy     = "net.fairlead.io/stolen-by"
	AnnStolenReason = "net.fairlead.io/stolen-reason"
	AnnStolenFrom   = "net.fairlead.io/stolen-from"
	AnnStolenAt     = "net.fairlead.io/stolen-at"
)

// AnnAdopted is on an AddressLease that `fairlead import whereabouts` has made: the sandbox for
// which. It stays when another has the lease.
const AnnAdopted = "net.fairlead.io/adopted-for"

// AnnL2Domain is an annotation of a NetworkAttachmentDefinition that names the layer 2
// which it leads to: networks that lead to one have one name there, and no address twice.
const AnnL2Domain = "net.fairlead.io/l2-domain"

// +kubebuilder:validation:XValidation:rule="has(self.spec.address) ? (self.metadata.name.startsWith(self.spec.domain + '.') && isIP(self.spec.address) && (self.spec.address.contains(':') ? self.metadata.name.substring(size(self.spec.domain) + 1).matches('^[0-9a-f]{4}(-[0-9a-f]{4}){7}$') && ip(self.metadata.name.substring(size(self.spec.domain) + 1).replace('-', ':')) == ip(self.spec.address) : self.metadata.name.substring(size(self.spec.domain) + 1) == self.spec.address)) : has(self.spec.mac) && self.metadata.name == self.spec.domain + '.mac.' + self.spec.mac.replace(':', '')",messageExpression="'name ' + self.metadata.name + ' is not that of what it leases in domain ' + self.spec.domain",fieldPath=".spec.domain"

// AddressLease is one address, or one MAC, of one domain of layer 2 and who has it. Its
// name follows from these (package lease), so that the API server makes it once: of two
// who claim an address one has it. Agents write it, each for its own node; it is
// cluster-scoped, as a network is. Spec and status are written together: who has it, and
// since when, is one change.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nal,categories=fairlead
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=fairlead"
// +kubebuilder:selectablefield:JSONPath=".spec.holder.node"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=".spec.owner.namespace"
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=".spec.owner.pod"
// +kubebuilder:printcolumn:name="Interface",type=string,JSONPath=".spec.owner.interface"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=".spec.holder.node"
// +kubebuilder:printcolumn:name="DeclaredBy",type=string,JSONPath=".spec.declaredBy",priority=1
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=".status.since"
type AddressLease struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata"`

	Spec AddressLeaseSpec `json:"spec"`
	// +optional
	Status AddressLeaseStatus `json:"status,omitzero"`
}

// +kubebuilder:validation:XValidation:rule="has(self.address) != has(self.mac)",message="a lease is of an address or of a MAC",fieldPath=".domain"
// +kubebuilder:validation:XValidation:rule="!has(self.mac) || self.mac.matches('^[0-9a-f]{2}(:[0-9a-f]{2}){5}$')",messageExpression="'mac ' + self.mac + ' is not of the form 02:00:00:00:00:01'",fieldPath=".mac"
// +kubebuilder:validation:XValidation:rule="self.holder.sandbox == '' || self.holder.node != ''",message="a holder is on a node",fieldPath=".holder"
// +kubebuilder:validation:XValidation:rule="self.holder.epoch >= oldSelf.holder.epoch",message="the holder's epoch grows",fieldPath=".holder"

// AddressLeaseSpec is what is leased, for whom, and who has it now.
type AddressLeaseSpec struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=213
	Domain string `json:"domain"` // of layer 2
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address,omitempty"`
	// +kubebuilder:validation:MaxLength=17
	MAC string `json:"mac,omitempty"` // lower case

	Owner LeaseOwner `json:"owner"`
	// DeclaredBy is the object that declares it for the owner, "KIND NAMESPACE/NAME"; ""
	// where it was chosen.
	//
	// +kubebuilder:validation:MaxLength=1024
	DeclaredBy string `json:"declaredBy,omitempty"`
	// Retain is Forever where it is kept for the owner when nobody declares it any more.
	//
	// +kubebuilder:validation:Enum=Forever
	Retain string      `json:"retain,omitempty"`
	Holder LeaseHolder `json:"holder"`
}

// LeaseOwner is the pod's interface, by name, that the lease is for.
type LeaseOwner struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Interface string `json:"interface"`
}

// LeaseHolder is the sandbox that has it; of one that nobody has only the epoch is set.
type LeaseHolder struct {
	PodUID string `json:"podUID,omitempty"`
	// Sandbox is the container id by which the runtime asked; "": nobody has it.
	//
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	Sandbox string `json:"sandbox"`
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	Node   string `json:"node"`
	BootID string `json:"bootID,omitempty"` // of the node
	Device string `json:"device,omitempty"` // its PCI address
	// SelfFence: the node takes it off the network by itself when it cannot renew its heartbeat,
	// Lease fairlead-node-NODE, so that the end of this proves that nobody has it.
	SelfFence bool `json:"selfFence,omitempty"`
	// Epoch grows with each holder.
	//
	// +kubebuilder:validation:Minimum=0
	Epoch int64 `json:"epoch"`
}

// AddressLeaseStatus says how it stands.
type AddressLeaseStatus struct {
	// +kubebuilder:validation:Enum=Reserved;Bound;Releasing;Conflict
	Phase string `json:"phase,omitempty"`
	// Since is when it came to this phase or holder, by the clock of the node that wrote it.
	//
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// Reason is that of a Conflict: AddressConflictOnWire, who had it was answered for by
	// somebody on the network and gave it back; AddressConflict, another pod has it too, as
	// its node's journal says.
	//
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// Message is for people, of a Conflict.
	//
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// AddressLeaseList is a list of AddressLeases.
//
// +kubebuilder:object:root=true
type AddressLeaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []AddressLease `json:"items"`
}
