package query

import (
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
)

// whole are annotations that ask for networks under one key.
var whole = []string{v1.AnnNetworks, v1.AnnDefaultNetwork, v1.AnnIngressBandwidth, v1.AnnEgressBandwidth}

// fields ask for something of one network, whose provider stands before them.
var fields = []string{
	v1.FieldIP, v1.FieldIPPool, v1.FieldFamily, v1.FieldMAC, v1.FieldCIDR, v1.FieldGateway, v1.FieldSubnet, v1.FieldRoutes,
	v1.FieldIngressRate, v1.FieldEgressRate, v1.FieldIngressBurst, v1.FieldEgressBurst, v1.FieldLatency, v1.FieldJitter,
	v1.FieldLimit, v1.FieldLoss, v1.FieldMirror, v1.FieldVLAN, v1.FieldNICType, v1.FieldDefaultRoute,
	v1.FieldProviderNetwork, v1.FieldNetworkType, v1.FieldAllocated, v1.FieldRouted, v1.FieldDeclared, v1.FieldSecurityGroups, v1.FieldVip, v1.FieldAAPs, v1.ExternalEIP, v1.ExternalSNAT,
}

// requested are the annotations about networks that somebody wrote on the pod,
// users or a controller.
func requested(notes map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range notes {
		_, field, _ := strings.Cut(key, v1.ProviderSuffix)
		field, _, _ = strings.Cut(field, ".") // an interface's name may follow
		if slices.Contains(whole, key) || slices.Contains(fields, field) {
			out[key] = value
		}
	}
	return out
}
