// Package critest pins CRI's conformance suite. The suite is the test binary of
// a command, which a `tool` line cannot name: the imports below are the command's
// own, so that the module holds all that building it needs.
package critest

import (
	// See the package's comment.
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/common"
	_ "sigs.k8s.io/cri-tools/pkg/framework"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
	_ "sigs.k8s.io/cri-tools/pkg/version"
)
