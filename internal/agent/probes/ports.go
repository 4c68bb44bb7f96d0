package probes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

// askLimit bounds a question to the API server.
const askLimit = 3 * time.Second

// annConfigHash has, on the mirror of a static pod, the UID by which the runtime knows it.
const annConfigHash = "kubernetes.io/config.hash"

// Ports asks the API server at which TCP ports a pod is probed, by credentials that from
// gives. core.ErrNotFound while it does not have the pod.
func Ports(ctx context.Context, from func() (login.Login, error), p core.Pod) (out []uint16, err error) {
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	l, err := from()
	if err != nil {
		return nil, err
	}
	found := false
	err = login.Follow(ctx, l, "/api/v1/namespaces/"+p.Namespace+"/pods", p.Name, func(_ string, object []byte) (bool, error) {
		var o probed
		if err := json.Unmarshal(object, &o); err != nil {
			return true, err
		}
		if p.UID != "" && p.UID != o.Metadata.UID && p.UID != o.Metadata.Annotations[annConfigHash] {
			return false, nil // one of the name before it, or behind it
		}
		found, out = true, o.ports()
		return true, nil
	})
	if err == nil && !found {
		err = core.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("probes of pod %s: %w", p, err)
	}
	return out, nil
}

// probed is what is read of a Pod object.
type probed struct {
	Metadata struct {
		UID         string            `json:"uid"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Containers     []container `json:"containers"`
		InitContainers []container `json:"initContainers"`
	} `json:"spec"`
}

type container struct {
	Ports []struct {
		Name string `json:"name"`
		Port uint16 `json:"containerPort"`
	} `json:"ports"`
	Liveness  *probe `json:"livenessProbe"`
	Readiness *probe `json:"readinessProbe"`
	Startup   *probe `json:"startupProbe"`
}

type probe struct {
	TCP  *target `json:"tcpSocket"`
	HTTP *target `json:"httpGet"`
	GRPC *target `json:"grpc"`
}

// target is where a probe goes: a port's number, or its name in the container, of the pod
// or of another host.
type target struct {
	Host string          `json:"host"`
	Port json.RawMessage `json:"port"`
}

// ports are those of the pod's own addresses, each once, sorted.
func (o probed) ports() (out []uint16) {
	for _, c := range slices.Concat(o.Spec.InitContainers, o.Spec.Containers) {
		for _, p := range []*probe{c.Liveness, c.Readiness, c.Startup} {
			if p == nil {
				continue
			}
			for _, t := range []*target{p.TCP, p.HTTP, p.GRPC} {
				if n := c.number(t); n != 0 {
					out = append(out, n)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// number is the port of a target, 0 for none.
func (c container) number(t *target) uint16 {
	if t == nil || t.Host != "" {
		return 0
	}
	var name string
	if json.Unmarshal(t.Port, &name) != nil {
		name = string(t.Port)
	}
	if n, err := strconv.ParseUint(name, 10, 16); err == nil {
		return uint16(n)
	}
	for _, p := range c.Ports {
		if p.Name == name {
			return p.Port
		}
	}
	return 0
}
