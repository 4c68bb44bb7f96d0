package agent

import "encoding/json"

// Paths for `fairlead import multus`; each is a POST of a Multus.
const (
	PathMultusAdopt   = "/v1/multus/adopt"   // AdoptResult
	PathMultusExport  = "/v1/multus/export"  // ExportResult
	PathMultusRelease = "/v1/multus/release" // AdoptResult, of what was dropped
)

// Multus says whose containers are meant. What is asked for may be asked again.
type Multus struct {
	// Config is Multus' configuration as a runtime gives it to the plugin.
	Config json.RawMessage `json:"config"`
	// BinDirs are searched for plugins behind the agent's own folders.
	BinDirs []string `json:"binDirs,omitempty"`
	// Containers are container ids; none for all (PathMultusExport).
	Containers []string `json:"containers,omitempty"`
}

// States of an Adopted.
const (
	AdoptedNow    = "adopted"  // the journal has it, and Multus' files go with its DEL
	AdoptedBefore = "joined"   // the journal had attachments of it: Multus' own join them at DEL
	AdoptedGone   = "gone"     // its namespace, or Multus' record, is not there any more
	AdoptedUnfit  = "files"    // only Multus' files can serve it: DEL works, CHECK as far as they know
	AdoptedFailed = "failed"   // to be tried again
	Released      = "released" // PathMultusRelease: the journal has dropped it
)

// AdoptResult answers PathMultusAdopt and PathMultusRelease.
type AdoptResult struct {
	Items []Adopted `json:"items"`
}

// Adopted is what became of one container.
type Adopted struct {
	AttachmentRef
	State      string   `json:"state"`
	Reason     string   `json:"reason,omitempty"` // absent for AdoptedNow and Released
	Interfaces []string `json:"interfaces,omitempty"`
	// Differences are CHECK's, of one that was adopted: what differed before.
	Differences []string `json:"differences,omitempty"`
}

// ExportResult answers PathMultusExport: the attachments of the journal, and
// what Multus needs to detach them.
type ExportResult struct {
	Items []Exported `json:"items"`
}

// Exported is one attachment. With a Reason only Fairlead can detach it.
type Exported struct {
	AttachmentRef
	Reason string         `json:"reason,omitempty"`
	Files  []ExportedFile `json:"files,omitempty"`
}

// ExportedFile is a file on the node. Without Data it is Multus' own, which has
// to be there.
type ExportedFile struct {
	Path string `json:"path"`
	Data []byte `json:"data,omitempty"`
}
