// Package groups knows which SecurityGroups and shared addresses have rows, which pods have
// ports in them, and which pods may have a shared address. It must not know rows of a database.
package groups

import (
	"maps"
	"slices"
	"sync"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
)

// Members are the groups that have rows, and the pods that have ports in them.
type Members struct {
	mu      sync.Mutex
	written map[string]bool // "" is the group of all ports that name one
	members map[string]map[object.Key]bool
	vpcs    map[string]bool // in which pods name groups, the default one always
}

// New makes one of no groups.
func New() *Members {
	return &Members{written: map[string]bool{}, members: map[string]map[object.Key]bool{}, vpcs: map[string]bool{v1.DefaultVpc: true}}
}

// Lost notes that a group's rows are not what was written, and gives the pods whose
// ports it may have lost.
func (s *Members) Lost(group string) (pods []object.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.written, group)
	return s.of(group)
}

// Forget has all groups' rows made anew before a port comes into them.
func (s *Members) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.written {
		if name != "" {
			delete(s.written, name)
		}
	}
}

// Of are the pods in a group.
func (s *Members) Of(group string) (pods []object.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(group)
}

// Vpcs are those in which pods name groups.
func (s *Members) Vpcs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.vpcs))
}

// of is Of. The caller holds mu.
func (s *Members) of(group string) (pods []object.Key) {
	for k := range s.members[group] {
		pods = append(pods, k)
	}
	return pods
}

// Has tells that a group's rows are there.
func (s *Members) Has(group string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written[group]
}

// Note notes of a group that its rows are there, and tells what of that is news.
func (s *Members) Note(group string, there bool) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = s.written[group] != there
	s.written[group] = there
	return news
}

// Add notes groups into which a pod comes.
func (s *Members) Add(pod object.Key, groups []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range groups {
		if s.members[name] == nil {
			s.members[name] = map[object.Key]bool{}
		}
		s.members[name][pod] = true
	}
}

// Come notes that pods of a Vpc name groups, and tells whether that is news.
func (s *Members) Come(vpc string) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = !s.vpcs[vpc]
	s.vpcs[vpc] = true
	return news
}

// Put notes the groups of a pod, and gives those that it has left.
func (s *Members) Put(pod object.Key, groups []string) (left []string) {
	s.Add(pod, groups)
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, pods := range s.members {
		if pods[pod] && !slices.Contains(groups, name) {
			left = append(left, name)
			if delete(pods, pod); len(pods) == 0 {
				delete(s.members, name)
			}
		}
	}
	return left
}
