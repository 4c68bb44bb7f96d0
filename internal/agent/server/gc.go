package server

import (
	"errors"
	"net/http"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/agent/engine"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/record"
)

func (s *Server) serveGC(w http.ResponseWriter, r *http.Request) {
	done, err := s.Engine.Collect(r.Context())
	s.answerGC(w, done, err, false)
}

// servePreview tells what serveGC would do. It is a GET, which an agent of an
// older version refuses; a flag of the POST it would pass over.
func (s *Server) servePreview(w http.ResponseWriter, r *http.Request) {
	would, err := s.Engine.Preview(r.Context())
	s.answerGC(w, would, err, true)
}

func (s *Server) answerGC(w http.ResponseWriter, done engine.Collected, err error, dry bool) {
	if err != nil && len(done.Removed)+len(done.Failed) == 0 {
		refuse(w, core.WithCode(core.CodeIO, "gc", err))
		return
	}
	out := agent.GCResult{DryRun: dry, Removed: []agent.GCRemoved{}}
	would := map[core.Key]bool{}
	for _, rec := range done.Removed {
		would[rec.Key] = dry
		rec.Specs = record.AllSpecs(rec)
		out.Removed = append(out.Removed, agent.GCRemoved{AttachmentRef: ref(rec), Reason: collectedFor(rec), Interfaces: interfaces(rec)})
	}
	for _, x := range done.Strays {
		out.Strays = append(out.Strays, agent.GCStray{Kind: x.Kind, Name: x.Name, Container: x.Key.Container, IfName: x.Key.IfName})
	}
	if done.Unswept != nil {
		out.Unswept = done.Unswept.Error()
	}
	if err != nil {
		out.Failed = append(out.Failed, agent.GCFailure{Error: err.Error()})
	}
	for _, rec := range s.View.Journal.Records() {
		if would[rec.Key] {
			continue
		}
		if why := stays(rec, done); why != nil {
			out.Failed = append(out.Failed, agent.GCFailure{AttachmentRef: ref(rec), Error: why.Error()})
		} else {
			out.Kept++
		}
	}
	writeJSON(w, http.StatusOK, out)
}

// stays is why a record is there that was to be collected, nil for any other.
func stays(rec core.Record, done engine.Collected) error {
	if why := done.Failed[rec.Key]; why != nil || !rec.Orphan {
		return why
	}
	return errors.New(rec.Error)
}

// collectedFor is why a record is collected.
func collectedFor(rec core.Record) string {
	if rec.Orphan {
		return "orphan, its removal failed so far: " + rec.Error
	}
	return "its network namespace " + rec.Netns.Path + " is gone"
}
