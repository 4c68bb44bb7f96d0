package v1

import "encoding/json"

// Show notes on a Subnet that its spec only shows what a controller serves (AnnShown).
func (s *Subnet) Show() {
	text, _ := json.Marshal(s.Spec) // it has nothing that JSON has not
	s.Annotations = map[string]string{AnnShown: string(text)}
}

// Shown tells that a spec declares nothing, by the annotations beside it: it is as a
// controller wrote it to show what it serves.
func Shown(notes map[string]string, spec SubnetSpec) bool {
	text, err := json.Marshal(spec)
	return err == nil && notes[AnnShown] == string(text)
}
