package source

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// parsed is what a file or an answer holds.
type parsed struct {
	pods     []*v1.Pod
	warnings []Problem
}

// parse reads all pods of a text. It is all or nothing: with one bad pod none
// is taken, so that what runs is what was written as a whole at some time.
func parse(data []byte, s Static, path string, file bool) (parsed, error) {
	var out parsed
	var bad refusals
	at := origin{node: s.Node, path: path, file: file}
	docs := split(data)
	for i := range docs {
		d := &docs[i]
		objects, err := d.objects(s)
		if err != nil {
			bad = append(bad, problem(path, err))
			continue
		}
		for _, r := range objects {
			pod, unknown, err := d.pod(r, s, at)
			for _, u := range unknown {
				out.warnings = append(out.warnings, Problem{Where: path, Line: u.line, Reason: u.reason, Warning: true})
			}
			bad = append(bad, problems(path, err)...)
			if err == nil {
				out.pods = append(out.pods, pod)
			}
		}
	}
	if len(docs) == 0 {
		bad = append(bad, Problem{Where: path, Reason: "is empty"})
	}
	if len(bad) > 0 {
		sortProblems(bad)
		return parsed{warnings: out.warnings}, bad
	}
	return out, nil
}

// pod makes one static pod.
func (d *document) pod(r raw, s Static, at origin) (*v1.Pod, []fault, error) {
	pod, unknown, err := d.decode(r)
	if err != nil {
		return nil, nil, err
	}
	if pod.Name == "" {
		return nil, unknown, fault{d.lineOf(r.path + ".metadata"), "metadata.name is required"}
	}
	setDefaults(pod)
	makeStatic(pod, at)
	errs := append(validate(pod), references(pod, s.Objects)...)
	var faults []error
	for _, e := range errs {
		faults = append(faults, d.fault(r, e))
	}
	return pod, unknown, errors.Join(faults...)
}

func (d *document) fault(r raw, e *field.Error) fault {
	return fault{d.lineOf(r.path + "." + e.Field), e.Error()}
}

func problem(where string, err error) Problem {
	if f := (fault{}); errors.As(err, &f) {
		return Problem{Where: where, Line: f.line, Reason: f.reason}
	}
	return Problem{Where: where, Reason: err.Error()}
}

// problems takes joined errors apart.
func problems(where string, err error) []Problem {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []Problem{problem(where, err)}
	}
	var out []Problem
	for _, e := range joined.Unwrap() {
		out = append(out, problem(where, e))
	}
	return out
}

// twice finds names and UIDs that several pods have. Of one name the last pod in
// the order of files is taken, as in kubelet; a UID is only ever there twice
// because files say it, and whoever hears of two such pods takes them for one.
func twice(pods []*v1.Pod, where []string) ([]*v1.Pod, []Problem) {
	last := map[string]int{}
	key := func(p *v1.Pod) string { return p.Namespace + "/" + p.Name }
	for i, p := range pods {
		last[key(p)] = i
	}
	var out []*v1.Pod
	var found []Problem
	uids := map[types.UID]string{}
	for i, p := range pods {
		if l := last[key(p)]; l != i {
			found = append(found, Problem{Where: where[i],
				Reason: fmt.Sprintf("pod %s is left out: %s has one of the same name", key(p), where[l])})
			continue
		}
		if other, ok := uids[p.UID]; ok {
			found = append(found, Problem{Where: where[i], Warning: true,
				Reason: fmt.Sprintf("pod %s has the same metadata.uid as pod %s", key(p), other)})
		}
		uids[p.UID] = key(p)
		out = append(out, p)
	}
	return out, found
}
