package server

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/multus/records"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// firstInterface is what runtimes call it; Multus does not keep the name.
const firstInterface = "eth0"

// importer reads a request about Multus.
func (s *Server) importer(r *http.Request) (in agent.Multus, i records.Importer, err error) {
	if err := readJSON(r, &in); err != nil {
		return in, i, core.Errorf(core.CodeValue, "%w", err)
	}
	conf, err := cniconf.Parse(in.Config)
	if err != nil {
		return in, i, core.Errorf(core.CodeValue, "Multus' configuration: %w", err)
	}
	if s.Complete != nil {
		conf = s.Complete(conf)
	}
	return in, records.Importer{
		Folder:  s.Engine.Multus(core.Request{Conf: conf, Path: in.BinDirs}),
		Network: conf.Name, IfName: firstInterface,
		BootID: s.Engine.BootID, Journal: s.View.Journal, Lock: s.Engine.Lock,
	}, nil
}

// multus serves a request about Multus.
func (s *Server) multus(answer func(context.Context, agent.Multus, records.Importer) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		in, i, err := s.importer(r)
		if err != nil {
			refuse(w, err)
			return
		}
		writeJSON(w, http.StatusOK, answer(r.Context(), in, i))
	}
}

func (s *Server) adopt(ctx context.Context, in agent.Multus, i records.Importer) any {
	out := agent.AdoptResult{Items: []agent.Adopted{}}
	for _, id := range in.Containers {
		rec, err := i.Import(ctx, id)
		out.Items = append(out.Items, s.adopted(ctx, rec, err))
	}
	return out
}

// adopted tells what became of a container, and CHECKs what the journal has now.
func (s *Server) adopted(ctx context.Context, rec core.Record, err error) agent.Adopted {
	out := agent.Adopted{AttachmentRef: ref(rec), State: stateOf(err), Interfaces: names(rec)}
	if err != nil {
		out.Reason = err.Error()
		return out
	}
	s.Log.Info("attachment of Multus is in the journal", "container", rec.Key.Container, "pod", rec.Pod)
	out.Differences = differences(s.Engine.Check(ctx, core.Request{Key: rec.Key}))
	return out
}

func stateOf(err error) string {
	switch {
	case err == nil:
		return agent.AdoptedNow
	case errors.Is(err, core.ErrExists):
		return agent.AdoptedBefore
	case errors.Is(err, core.ErrNetnsGone):
		return agent.AdoptedGone
	case errors.Is(err, records.ErrUnfit), core.CodeOf(err) == core.CodeDecode:
		return agent.AdoptedUnfit
	case errors.Is(err, core.ErrNotFound):
		return agent.AdoptedGone
	}
	return agent.AdoptedFailed
}

func (s *Server) export(_ context.Context, in agent.Multus, i records.Importer) any {
	out := agent.ExportResult{Items: []agent.Exported{}}
	for _, rec := range s.View.Journal.Records() {
		if len(in.Containers) > 0 && !slices.Contains(in.Containers, rec.Key.Container) {
			continue
		}
		item := agent.Exported{AttachmentRef: ref(rec)}
		files, err := records.Export(rec, s.View.Journal.Container(rec.Key.Container), i.Dir)
		if err != nil {
			item.Reason, files = err.Error(), nil
		}
		for _, f := range files {
			item.Files = append(item.Files, agent.ExportedFile(f))
		}
		out.Items = append(out.Items, item)
	}
	slices.SortFunc(out.Items, func(a, b agent.Exported) int {
		return compare(a.Namespace+"/"+a.Pod, b.Namespace+"/"+b.Pod, a.Container+a.IfName, b.Container+b.IfName)
	})
	return out
}

func (s *Server) release(ctx context.Context, in agent.Multus, i records.Importer) any {
	out := agent.AdoptResult{Items: []agent.Adopted{}}
	for _, id := range in.Containers {
		for _, rec := range s.View.Journal.Container(id) {
			item := agent.Adopted{AttachmentRef: ref(rec), State: agent.Released}
			if err := i.Release(ctx, rec.Key); err != nil {
				item.State, item.Reason = agent.AdoptedFailed, err.Error()
			}
			out.Items = append(out.Items, item)
		}
	}
	return out
}
