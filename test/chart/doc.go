// Package chart holds what must be proven with tools that are too heavy for
// the product's go.mod: that Helm itself makes of the chart what `fairlead
// install` prints, and that the CRDs are what controller-gen makes of api/v1.
//
//	go -C test/chart test ./...                      compare
//	go -C test/chart test ./... -update              write the CRDs and the golden file
package chart
