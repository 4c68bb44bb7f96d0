package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// How a policy names its functions to kubelet.
const (
	IDModeSlot = "slot" // n0-3: the function is chosen when the pod starts
	IDModePCI  = "pci"  // 0000:01:10.3: kubelet chooses
)

// Drivers of a policy's functions.
const (
	DriverKernel = "kernel" // that of the network device
	DriverVFIO   = "vfio-pci"
)

// PriorityDefault is the Priority of a policy that says none.
const PriorityDefault = 99

// NodeVFPolicy says which virtual functions of the nodes' cards kubelet gives pods as
// which resource, and what these functions are like. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nvfp,categories=fairlead
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=fairlead"
// +kubebuilder:printcolumn:name="Resource",type=string,JSONPath=".spec.resource"
// +kubebuilder:printcolumn:name="PF",type=string,JSONPath=".spec.pf"
// +kubebuilder:printcolumn:name="VFs",type=integer,JSONPath=".spec.numVFs"
// +kubebuilder:printcolumn:name="Driver",type=string,JSONPath=".spec.driver"
// +kubebuilder:printcolumn:name="Not ready",type=string,JSONPath=".status.nodes[?(@.ready==false)].name"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type NodeVFPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata"`

	Spec   NodeVFPolicySpec   `json:"spec"`
	Status NodeVFPolicyStatus `json:"status,omitempty"`
}

// +kubebuilder:validation:XValidation:rule="self.resource.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,55}[A-Za-z0-9])?$') && !self.resource.split('/')[0].endsWith('kubernetes.io')",messageExpression="'resource ' + self.resource + ' is no name of the form vendor.example/db'",fieldPath=".resource"
// +kubebuilder:validation:XValidation:rule="has(self.pf) && size(self.pf) > 0 || has(self.selectors) && size(self.selectors) > 0",message="pf or selectors must say which functions are meant"
// +kubebuilder:validation:XValidation:rule="!has(self.numVFs) || has(self.pf) && size(self.pf) > 0",message="numVFs is a number for each physical function in pf",fieldPath=".numVFs"
// +kubebuilder:validation:XValidation:rule="!has(self.mtu) || has(self.pf) && size(self.pf) > 0",message="mtu is that of the physical functions in pf",fieldPath=".mtu"
// +kubebuilder:validation:XValidation:rule="!has(self.driver) || self.driver != 'vfio-pci' || !has(self.idMode) || self.idMode != 'slot'",message="functions of vfio-pci are given by their addresses: idMode pci",fieldPath=".idMode"
// +kubebuilder:validation:XValidation:rule="!has(self.selectors) || !self.selectors.exists(s, has(s.isRdma) && s.isRdma) || has(self.idMode) && self.idMode == 'pci'",message="a function's RDMA device is given with its address: idMode pci",fieldPath=".idMode"
// +kubebuilder:validation:XValidation:rule="!has(self.minRateBudgetPercent) || (!has(self.driver) || self.driver != 'vfio-pci') && (!has(self.idMode) || self.idMode != 'pci')",message="minRateBudgetPercent is of functions that the agent chooses: idMode slot",fieldPath=".minRateBudgetPercent"

// NodeVFPolicySpec is what a user writes.
type NodeVFPolicySpec struct {
	// Resource is what pods request, such as vendor.example/db. Policies of one resource
	// put their functions together.
	//
	// +kubebuilder:validation:MaxLength=253
	Resource string `json:"resource"`
	// NodeSelector are labels that a node must have; none: all nodes.
	//
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// PF are physical functions by the names of their devices: ens1f0 for all virtual
	// functions of it, ens1f0#0-3,6 for some, counted from 0.
	//
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=127
	// +kubebuilder:validation:items:Pattern=`^[^/:#%\s]{1,15}(#[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$`
	PF []string `json:"pf,omitempty"`
	// Selectors are further conditions: a function must fit one of them.
	//
	// +kubebuilder:validation:MaxItems=32
	Selectors []VFSelector `json:"selectors,omitempty"`
	// NumVFs is how many virtual functions each of PF is to have. It is changed only while
	// no pod has one of them.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	NumVFs *int `json:"numVFs,omitempty"`
	// IDMode is how kubelet calls the functions: slot, which is the default for the
	// kernel's driver, or pci.
	//
	// +kubebuilder:validation:Enum=slot;pci
	IDMode string `json:"idMode,omitempty"`
	// Driver is the one that the functions are bound to: kernel, which is the default, is
	// that of the network device.
	//
	// +kubebuilder:validation:Enum=kernel;vfio-pci
	Driver string `json:"driver,omitempty"`
	// MTU is that of the physical functions, in bytes.
	//
	// +kubebuilder:validation:Minimum=68
	// +kubebuilder:validation:Maximum=65535
	MTU int `json:"mtu,omitempty"`
	// Priority decides whose a function is that several policies mean: 0 counts most. Of
	// policies of one priority the older one has it.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=99
	Priority *int `json:"priority,omitempty"` // nil is PriorityDefault
	// ExternallyManaged: somebody else makes the functions and binds their drivers.
	ExternallyManaged bool `json:"externallyManaged,omitempty"`
	// ExcludeTopology keeps from kubelet which NUMA node a function belongs to.
	ExcludeTopology bool `json:"excludeTopology,omitempty"`
	// NeedVhostNet gives pods /dev/vhost-net and /dev/net/tun as well.
	NeedVhostNet bool        `json:"needVhostNet,omitempty"`
	Baseline     *VFBaseline `json:"baseline,omitempty"`
	// MinRateBudgetPercent bounds what the pods of a physical function can be promised
	// together, in percent of its speed.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MinRateBudgetPercent int `json:"minRateBudgetPercent,omitempty"`
}

// VFSelector means functions that fit each list of it that is not empty. The words are
// those of the usual device plugin's resourceList.
type VFSelector struct {
	// Vendors are PCI vendors, as 8086.
	//
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Pattern=`^[0-9a-fA-F]{4}$`
	Vendors []string `json:"vendors,omitempty"`
	// Devices are PCI device codes of the virtual functions, as 10ca.
	//
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Pattern=`^[0-9a-fA-F]{4}$`
	Devices []string `json:"devices,omitempty"`
	// Drivers are those of the functions at the moment.
	//
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	Drivers []string `json:"drivers,omitempty"`
	// PCIAddresses are the functions' own.
	//
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]$`
	PCIAddresses []string `json:"pciAddresses,omitempty"`
	// PFNames are as pf of the policy.
	//
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=127
	// +kubebuilder:validation:items:Pattern=`^[^/:#%\s]{1,15}(#[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$`
	PFNames []string `json:"pfNames,omitempty"`
	// RootDevices are the physical functions' addresses, with ranges as those of pfNames.
	//
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=127
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7](#[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$`
	RootDevices []string `json:"rootDevices,omitempty"`
	// LinkTypes are ether or infiniband, of the physical function.
	//
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=ether;infiniband
	LinkTypes []string `json:"linkTypes,omitempty"`
	// IsRDMA means functions with an RDMA device alone, and gives that to pods.
	IsRDMA bool `json:"isRdma,omitempty"`
}

// VFBaseline is what a function has of which nobody asks anything.
type VFBaseline struct {
	// VLAN is 1 to 4094; 0 is untagged.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4094
	VLAN     int   `json:"vlan,omitempty"`
	SpoofChk *bool `json:"spoofchk,omitempty"` // nil is true
	Trust    bool  `json:"trust,omitempty"`
	// MaxMbps is the most that it may send, in Mbit/s; 0 is no limit.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxMbps int `json:"maxMbps,omitempty"`
}

// NodeVFPolicyStatus is what the nodes that the policy means say of it.
type NodeVFPolicyStatus struct {
	// +listType=map
	// +listMapKey=name
	Nodes []NodeVFStatus `json:"nodes,omitempty"`
}

// NodeVFStatus is written by the agent of the node alone.
type NodeVFStatus struct {
	Name               string `json:"name"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	// Devices are the functions that kubelet was told of, and Healthy those of them that
	// it may give.
	Devices int `json:"devices"`
	Healthy int `json:"healthy"`
	// Ready: all of the policy is in force here.
	Ready bool `json:"ready"`
	// Conditions are Ready, and Conflict where another policy has some of the functions.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeVFPolicyList is a list of NodeVFPolicies.
//
// +kubebuilder:object:root=true
type NodeVFPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []NodeVFPolicy `json:"items"`
}
