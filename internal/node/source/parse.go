package source

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// parsed is what a file or an answer holds.
type parsed struct {
	pods     []*v1.Pod
	problems []Problem
	refused  bool                   // some of the problems are no warnings
	unknown  map[types.UID][]string // of each pod: fields that it does not have, with their lines
	// held are the names of pods whose document is refused; with opaque set, a
	// document does not even tell which pod it declares.
	held   map[string]bool
	opaque bool
}

// parse reads all pods of a text. A document that is refused leaves the others
// alone.
func parse(data []byte, s Static, path string, file bool) parsed {
	out := parsed{held: map[string]bool{}, unknown: map[types.UID][]string{}}
	at := origin{node: s.Node, path: path, file: file}
	docs := split(data)
	for i := range docs {
		d := &docs[i]
		objects, refused := d.objects(s)
		for _, r := range refused {
			out.refuse(path, r.name(at), r.err)
		}
		for _, r := range objects {
			pod, unknown, err := d.pod(r, s, at)
			for _, u := range unknown {
				if u.unsafe {
					continue // it is refused
				}
				out.problems = append(out.problems, Problem{Where: path, Line: u.line, Reason: u.reason, Warning: true})
			}
			if err != nil {
				out.refuse(path, r.name(at), err)
				continue
			}
			out.pods = append(out.pods, pod)
			for _, u := range unknown {
				out.unknown[pod.UID] = append(out.unknown[pod.UID], Problem{Where: path, Line: u.line, Reason: u.reason}.String())
			}
		}
	}
	if len(docs) == 0 {
		out.refuse(path, "", errors.New("is empty"))
	}
	sortProblems(out.problems)
	return out
}

// refuse notes what is wrong with the pod of a name; "" is any.
func (p *parsed) refuse(where, name string, err error) {
	p.problems, p.refused = append(p.problems, problems(where, err)...), true
	if name == "" {
		p.opaque = true
		return
	}
	p.held[name] = true
}

// over is what is in force: what is right now, and of what was before whatever is
// declared still and wrong now, or may be. A text in which nothing is right changes
// nothing, as with kubelet.
func (p *parsed) over(before []*v1.Pod) []*v1.Pod {
	if p.refused && len(p.pods) == 0 {
		return before
	}
	now := map[string]bool{}
	for _, pod := range p.pods {
		now[nameOf(pod)] = true
	}
	out := slices.Clone(p.pods)
	for _, pod := range before {
		if name := nameOf(pod); !now[name] && (p.opaque || p.held[name]) {
			out = append(out, pod)
		}
	}
	return out
}

// refusal is an error of the problems that are no warnings; nil without any.
func (p *parsed) refusal() error {
	if !p.refused {
		return nil
	}
	return refusals(slices.DeleteFunc(slices.Clone(p.problems), func(p Problem) bool { return p.Warning }))
}

func nameOf(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

// pod makes one static pod.
func (d *document) pod(r raw, s Static, at origin) (*v1.Pod, []fault, error) {
	pod, unknown, err := d.decode(r)
	if err != nil {
		return nil, nil, err
	}
	if pod.Name == "" {
		return nil, unknown, fault{line: d.lineOf(r.path + ".metadata"), reason: "metadata.name is required"}
	}
	setDefaults(pod)
	makeStatic(pod, at)
	errs := append(validate(pod), references(pod, s.Objects)...)
	var faults []error
	for _, u := range unknown {
		if u.unsafe {
			faults = append(faults, u)
		}
	}
	for _, e := range errs {
		faults = append(faults, d.fault(r, e))
	}
	return pod, unknown, errors.Join(faults...)
}

func (d *document) fault(r raw, e *field.Error) fault {
	return fault{line: d.lineOf(r.path + "." + e.Field), reason: e.Error()}
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

// twice finds names and UIDs that several pods have. Of one name the first pod by
// file, and by its place there, is taken, as the agent does; a UID is only ever
// there twice because files say it, and whoever hears of two such pods takes them
// for one.
func twice(pods []*v1.Pod, where []string) ([]*v1.Pod, []Problem) {
	first := map[string]string{} // its file
	var out []*v1.Pod
	var found []Problem
	uids := map[types.UID]string{}
	for i, p := range pods {
		if f, ok := first[nameOf(p)]; ok {
			found = append(found, Problem{Where: where[i],
				Reason: fmt.Sprintf("pod %s is left out: %s has one of the same name, which comes first", nameOf(p), f)})
			continue
		}
		first[nameOf(p)] = where[i]
		if other, ok := uids[p.UID]; ok {
			found = append(found, Problem{Where: where[i], Warning: true,
				Reason: fmt.Sprintf("pod %s has the same metadata.uid as pod %s", nameOf(p), other)})
		}
		uids[p.UID] = nameOf(p)
		out = append(out, p)
	}
	return out, found
}
