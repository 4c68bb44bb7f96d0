package object

import (
	"strings"

	"github.com/fairlead/fairlead/internal/controller/logical"
)

// KindLocals is the kind of the key of what names in load balancers stand for on each node,
// which no object has.
const KindLocals Kind = "locals"

// KindExits is the kind of the key of the nodes by which pods leave the cluster, and the
// owner of its rows.
const KindExits Kind = "gateways"

// KeyOf is the object of an owner of rows.
func KeyOf(owner string) (k Key, ok bool) {
	kind, rest, _ := strings.Cut(owner, "/")
	switch kind {
	case "vpc":
		return Key{Kind: KindVpc, Name: rest}, true
	case "subnet":
		return Key{Kind: KindSubnet, Name: rest}, true
	case "node":
		return Key{Kind: KindNode, Name: rest}, true
	case "pod":
		namespace, name, ok := strings.Cut(rest, "/")
		return KindPod.Named(namespace, name), ok
	case "service":
		namespace, name, ok := strings.Cut(rest, "/")
		return KindService.Named(namespace, name), ok
	case "vip":
		return Key{Kind: KindVip, Name: rest}, true
	case logical.LocalOwner:
		return Key{Kind: KindLocals}, true
	case string(KindExits):
		return Key{Kind: KindExits}, true
	case "securitygroup":
		return Key{Kind: KindGroup, Name: rest}, true
	case "networkpolicy":
		namespace, name, ok := strings.Cut(rest, "/")
		return KindPolicy.Named(namespace, name), ok
	}
	return Key{}, false
}
