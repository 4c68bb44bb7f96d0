// Package deploy carries the Helm chart, so that `fairlead install` renders the
// very files that Helm does. It holds files only; internal/install/manifest reads them.
package deploy

import "embed"

// Chart is the file system that has the chart in ChartDir.
//
//go:embed all:charts/fairlead
var Chart embed.FS

// Kinds has the definitions of the kinds of a cluster with OVN in KindsDir.
//
//go:embed cluster
var Kinds embed.FS

// KindsDir is their folder in Kinds.
const KindsDir = "cluster"

// ChartDir is the chart's folder in Chart.
const ChartDir = "charts/fairlead"
