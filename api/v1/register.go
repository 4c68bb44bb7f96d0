package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is APIVersion as clients want it.
var GroupVersion = schema.GroupVersion{Group: "kubeovn.io", Version: "v1"}

// AddToScheme makes the package's objects and their lists known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&IP{}, &IPList{},
		&IPPool{}, &IPPoolList{},
		&ProviderNetwork{}, &ProviderNetworkList{},
		&QoSPolicy{}, &QoSPolicyList{},
		&SecurityGroup{}, &SecurityGroupList{},
		&Subnet{}, &SubnetList{},
		&Vip{}, &VipList{},
		&Vlan{}, &VlanList{},
		&Vpc{}, &VpcList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
