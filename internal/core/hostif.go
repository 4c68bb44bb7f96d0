package core

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// Lengths of the parts of a host interface name, in bytes; the kernel's limit
// is 15 (IFNAMSIZ - 1).
const (
	idLen   = 12 // of the container id
	minID   = 8  // below this two containers of one node could well meet
	hashLen = 13 // 65 bits
)

// HostIf is the name of the host end of key's interface, as Kube-OVN names it
// (spec/sdn.md, section 2): the first 12 characters of the container id and
// "_h" for eth0; as many as leave room and "_<ifname>_h" for others. Where
// fewer than 8 would be left, or where an underscore in a part would make two
// keys look alike, 13 characters of a hash of the key stand in for both parts.
func HostIf(key Key) string {
	id, middle := key.Container, ""
	keep := idLen
	if key.IfName != "eth0" {
		middle = "_" + key.IfName
		keep -= len(key.IfName)
	}
	cut := len(id) > keep
	if (cut && keep < minID) || strings.Contains(id+key.IfName, "_") {
		return hashed(key)
	}
	if cut {
		id = id[:keep]
	}
	return id + middle + "_h"
}

func hashed(key Key) string {
	sum := sha256.Sum256([]byte(key.String()))
	text := base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])
	return strings.ToLower(text[:hashLen]) + "_h"
}
