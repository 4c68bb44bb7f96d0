package record

import (
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// Recall is the AddCall that rec's ADD would have written: nil where none of the
// runtime's configurations of that name is for all of a pod's networks.
func Recall(rec core.Record, runtime []core.Chain) *core.AddCall {
	for _, c := range runtime {
		if c.Name != rec.Network {
			continue
		}
		for _, p := range c.Plugins {
			if !core.MetaType(p.Type) {
				continue
			}
			if conf, err := cniconf.PluginConf(c, p, cniconf.Inject{}); err == nil {
				return &core.AddCall{Conf: conf, Args: podArgs(rec)}
			}
		}
	}
	return nil
}

// podArgs are CNI_ARGS as runtimes make them for pods.
func podArgs(rec core.Record) string {
	args := fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_INFRA_CONTAINER_ID=%s",
		rec.Pod.Namespace, rec.Pod.Name, rec.Key.Container)
	if rec.Pod.UID != "" {
		args += ";K8S_POD_UID=" + rec.Pod.UID
	}
	return args
}

// Request is the request that a record was made for; without ask, one of which
// nothing but the pod is known.
func Request(rec core.Record, ask *core.AddCall) (core.Request, error) {
	req := core.Request{Op: core.Add, Key: rec.Key, Netns: rec.Netns.Path, Pod: rec.Pod}
	if ask == nil {
		req.Conf = core.Conf{Name: rec.Network, Type: "fairlead"}
		return req, nil
	}
	req.RawArgs, req.Path = ask.Args, ask.Path
	var err error
	if req.Conf, err = cniconf.Parse(ask.Conf); err == nil {
		req.Args, err = cniconf.ParseArgs(ask.Args)
	}
	return req, err
}
