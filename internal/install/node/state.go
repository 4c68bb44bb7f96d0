package node

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/internal/lib/filelock"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

// state is what was done to the node, written durably before each step.
type state struct {
	Files []kept `json:"files"`
}

// kept is one file that was written.
type kept struct {
	Path string `json:"path"`
	// Backup is the name of the former content in the state's folder, "" where
	// there was no file.
	Backup string      `json:"backup,omitempty"`
	Mode   fs.FileMode `json:"mode,omitempty"`
	// Link is where a symbolic link led that was there.
	Link string `json:"link,omitempty"`
	// Wrote are the SHA-256 of what we have written there, at any time.
	Wrote []string `json:"wrote"`
}

const (
	stateFile  = "state.json"
	folderMode = 0o700
)

func (n *Node) load() (s state, err error) {
	raw, err := os.ReadFile(filepath.Join(n.StateDir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return s, fmt.Errorf("state of the installation in %s: %w", n.StateDir, err)
	}
	return s, nil
}

func (n *Node) save(s state) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("state of the installation: %w", err)
	}
	return hostfile.Write(filepath.Join(n.StateDir, stateFile), raw, 0o600)
}

// lock keeps a second installation away until the function is called, or the
// process ends.
func (n *Node) lock() (func(), error) {
	l, err := filelock.Take(filepath.Join(n.StateDir, "lock"), 0)
	if errors.As(err, new(*filelock.HeldError)) {
		return nil, errors.New("another installation is under way on this node")
	}
	if err != nil {
		return nil, fmt.Errorf("state of the installation: %w", err)
	}
	return l.Release, nil
}

// remember records that content will be written to a path, and backs up what is
// there unless that is ours.
func (n *Node) remember(s *state, path, backup, sum string) error {
	i := slices.IndexFunc(s.Files, func(k kept) bool { return k.Path == path })
	if i < 0 {
		s.Files = append(s.Files, kept{Path: path})
		i = len(s.Files) - 1
	}
	k := &s.Files[i]
	have, err := contentOf(path)
	if err != nil {
		return err
	}
	if have != "" && !slices.Contains(k.Wrote, have) {
		if err := n.keep(k, backup); err != nil {
			return fmt.Errorf("back up: %w", err)
		}
	}
	if !slices.Contains(k.Wrote, sum) {
		k.Wrote = append(k.Wrote, sum)
	}
	return n.save(*s)
}

// keep backs a file up, or remembers where a link leads.
func (n *Node) keep(k *kept, backup string) error {
	info, err := os.Lstat(k.Path)
	if err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSymlink {
		k.Backup = ""
		k.Link, err = os.Readlink(k.Path)
		return err
	}
	k.Backup, k.Mode, k.Link = backup, info.Mode().Perm(), ""
	return hostfile.Copy(k.Path, filepath.Join(n.StateDir, backup), k.Mode)
}

// before is the content that a file had before we changed it, as contentOf gives
// it.
func (n *Node) before(k kept) (string, error) {
	switch {
	case k.Link != "":
		return linkTo + k.Link, nil
	case k.Backup != "":
		return contentOf(filepath.Join(n.StateDir, k.Backup))
	}
	return "", nil
}

// linkTo marks where a link leads, among checksums.
const linkTo = "-> "

// contentOf is a file's SHA-256, where a symbolic link leads, or "" without
// either.
func contentOf(path string) (string, error) {
	if to, err := os.Readlink(path); err == nil {
		return linkTo + to, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return sum(b), nil
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
