package takeover

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
)

// Look reads a cluster and makes the plan. What the user may not see, and kinds that
// the server does not have, the client notes.
func Look(ctx context.Context, c *query.Client) (*Plan, error) {
	p := &Plan{Parts: []Part{}, Objects: []Count{}, Values: []Value{}, Changes: []string{}, Blocks: []Block{}, Unseen: []string{}}
	for _, w := range []struct {
		name string
		query.Kind
	}{{"Deployment", query.Deployments}, {"DaemonSet", query.DaemonSets}} {
		if err := p.each(ctx, c, w.Kind, "programs of Kube-OVN ("+w.name+"s)", func(o query.Object) error { return p.workload(w.name, o) }); err != nil {
			return nil, err
		}
	}
	p.order() // the parts; what they say follows in that order
	for _, part := range p.Parts {
		if part.Name == controllerName || part.Name == cniName {
			p.flags(part)
		}
	}
	held := 0
	for _, k := range kinds() {
		n := 0
		err := p.each(ctx, c, k.Kind, k.name+" objects", func(o query.Object) error {
			n++
			if slices.Contains(o.Metadata.Finalizers, v1.Finalizer) && k.name != "IP" {
				held++
			}
			return k.look(p, k.name+" "+path.Join(o.Metadata.Namespace, o.Metadata.Name), o)
		})
		if err != nil {
			return nil, err
		}
		p.count(k.name, n)
	}
	if held > 0 {
		p.change("%d objects have the finalizer %s, which only Kube-OVN's controller takes off: without it they do not go when they are deleted", held, v1.Finalizer)
	}
	if err := p.pods(ctx, c); err != nil {
		return nil, err
	}
	p.order()
	return p, nil
}

func (p *Plan) count(kind string, n int) {
	if n > 0 {
		p.Objects = append(p.Objects, Count{kind, n})
	}
}

// each is the client's Each, whose use may fail. A kind that the server does not have
// has no objects; what the user may not see is noted, and unseen.
func (p *Plan) each(ctx context.Context, c *query.Client, k query.Kind, what string, use func(query.Object) error) error {
	var failed error
	err := c.Each(ctx, k, query.Scope{}, func(o query.Object) {
		if failed == nil {
			failed = use(o)
		}
	})
	if failed != nil || err == nil || errors.Is(err, core.ErrNotFound) {
		return failed
	}
	if _, err = c.Lacking(err, what); err == nil {
		p.Unseen = append(p.Unseen, what)
	}
	return err
}

// workload takes one that is Kube-OVN's.
func (p *Plan) workload(kind string, o query.Object) error {
	if !slices.Contains(workloads, o.Metadata.Name) {
		return nil
	}
	var spec struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Image   string   `json:"image"`
					Command []string `json:"command"`
					Args    []string `json:"args"`
				} `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
	}
	if err := query.Read(o.Spec, &spec); err != nil {
		return fmt.Errorf("%s %s/%s: %w", kind, o.Metadata.Namespace, o.Metadata.Name, err)
	}
	part := Part{Kind: kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
	if all := spec.Template.Spec.Containers; len(all) > 0 {
		part.Image, part.Args = all[0].Image, slices.Concat(all[0].Command, all[0].Args)
	}
	p.Parts = append(p.Parts, part)
	return nil
}

// pods counts those that were told their addresses, and looks at what they ask for.
func (p *Plan) pods(ctx context.Context, c *query.Client) error {
	told := 0
	err := p.each(ctx, c, query.Pods, "pods", func(o query.Object) error {
		if o.Metadata.Annotations["ovn.kubernetes.io/allocated"] == "true" {
			told++
		}
		p.block("Pod "+o.Metadata.Namespace+"/"+o.Metadata.Name, status.UndonePod(o.Metadata.Annotations, true)...)
		return nil
	})
	p.count("Pod", told)
	return err
}
