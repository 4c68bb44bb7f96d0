// Package declare checks what users declare in kubeovn.io objects: each object
// by itself, and all Subnets against each other. It is pure, and knows neither
// where objects come from (local: files, cluster: the Kubernetes API) nor what
// is done with them.
package declare
