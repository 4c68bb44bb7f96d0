package source

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/source/folder"
)

// declared is a pod and its name in the file, which lacks the node's.
type declared struct {
	id   folder.ID
	pod  *v1.Pod
	file string
	line int
}

// parsed is what a file or an answer holds.
type parsed struct {
	from     *folder.File
	pods     []declared
	problems []Problem              // of pods, beside those of from
	refused  map[folder.ID]bool     // pods that are not taken
	unknown  map[types.UID][]string // of each pod: fields that it does not have, with their lines
}

// parse makes pods of objects of a file or an answer. One that is refused leaves
// the others alone.
func parse(from *folder.File, objects []*folder.Object, s Static, file bool) parsed {
	out := parsed{from: from, refused: map[folder.ID]bool{}, unknown: map[types.UID][]string{}}
	for _, o := range objects {
		pod, unknown, faults := makePod(o, s, origin{node: s.Node, path: from.Name, file: file})
		for _, u := range unknown {
			p := o.Problem(from.Name, u)
			p.Warning = true
			out.problems = append(out.problems, p)
		}
		for _, f := range faults {
			out.refused[o.ID] = true
			out.problems = append(out.problems, o.Problem(from.Name, f))
		}
		if len(faults) > 0 {
			continue
		}
		out.pods = append(out.pods, declared{o.ID, pod, from.Name, o.Line})
		for _, u := range unknown {
			out.unknown[pod.UID] = append(out.unknown[pod.UID], Problem{Where: from.Name, Line: u.Line, Reason: u.Reason}.String())
		}
	}
	folder.SortProblems(out.problems)
	return out
}

// all are the problems of the file and of its pods, by line.
func (p *parsed) all() []Problem {
	out := append(p.from.Problems(), p.problems...)
	folder.SortProblems(out)
	return out
}

// over is what is in force: what is right now, and of what was before whatever is
// declared still and wrong now, or may be. A text in which nothing is right changes
// nothing, as with kubelet.
func (p *parsed) over(before []declared) []declared {
	if len(p.pods) == 0 && len(p.from.Refused)+len(p.refused) > 0 {
		return before
	}
	now := map[folder.ID]bool{}
	for _, d := range p.pods {
		now[d.id] = true
	}
	out := append([]declared(nil), p.pods...)
	for _, d := range before {
		if !now[d.id] && (p.refused[d.id] || p.from.MayDeclare(d.id)) {
			out = append(out, d)
		}
	}
	return out
}

// refusal is an error of the problems that are no warnings; nil without any.
func (p *parsed) refusal() error {
	var out refusals
	for _, problem := range p.all() {
		if !problem.Warning {
			out = append(out, problem)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func nameOf(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

// makePod makes one static pod. unknown are fields that a pod does not have, and
// that it may be run without.
func makePod(o *folder.Object, s Static, at origin) (pod *v1.Pod, unknown, faults []*folder.Fault) {
	pod = &v1.Pod{}
	strange, wrong := o.Decode(pod)
	if wrong != nil {
		return nil, nil, []*folder.Fault{wrong}
	}
	pod.TypeMeta = metav1.TypeMeta{}
	for _, f := range strange {
		if guards(f.Path) {
			faults = append(faults, f)
		} else {
			unknown = append(unknown, f)
		}
	}
	setDefaults(pod)
	makeStatic(pod, at)
	for _, e := range append(validate(pod), references(pod, s.Objects)...) {
		faults = append(faults, o.Faultf(e.Field, "%v", e))
	}
	return pod, unknown, faults
}

// guards tells an unknown field that looks like one by which a container gets less
// rights, misspelt or newer than this version: it is refused, others are told.
func guards(path string) bool {
	path = strings.ToLower(path)
	return slices.ContainsFunc([]string{"secur", "hostuser", "seccomp", "apparmor", "privilegeescal"}, func(word string) bool {
		return strings.Contains(path, word)
	})
}

// twice finds names and UIDs that several pods have. Of one name the first pod by
// file, and by its place there, is taken, as the agent does; a UID is only ever
// there twice because files say it, and whoever hears of two such pods takes them
// for one.
func twice(all []declared) ([]*v1.Pod, []Problem) {
	first := map[folder.ID]declared{}
	var out []*v1.Pod
	var found []Problem
	uids := map[types.UID]string{}
	for _, d := range all {
		if f, ok := first[d.id]; ok {
			found = append(found, folder.Twice(d.id, d.file, d.line, f.file, f.line))
			continue
		}
		first[d.id] = d
		if other, ok := uids[d.pod.UID]; ok {
			found = append(found, Problem{Where: d.file, Warning: true,
				Reason: fmt.Sprintf("pod %s has the same metadata.uid as pod %s", nameOf(d.pod), other)})
		}
		uids[d.pod.UID] = nameOf(d.pod)
		out = append(out, d.pod)
	}
	return out, found
}
