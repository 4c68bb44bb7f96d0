package identity

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

// Files of a directory, as ovn-controller is told them.
const (
	KeyFile  = "key.pem"
	CertFile = "cert.pem"
	CAFile   = "ca.pem" // whom it trusts as the southbound database

	// current leads to the folder of the pair in force. Key and certificate are
	// links through it: ovn-controller reads both anew when both have changed, which
	// it would never see of one after the other (stream-ssl.c).
	current = "current"
	pairDir = "pair-"
	under   = "ca.sha256" // in that folder: what the CAs were when it was asked for
)

// store is the directory of the files.
type store struct{ dir string }

func (s store) file(name string) string { return filepath.Join(s.dir, name) }

// Load is the certificate in force of a directory. Its key was read too and belongs
// to it. fs.ErrNotExist: there is none.
func Load(dir string) (*x509.Certificate, error) {
	s := store{dir}
	pair, err := tls.LoadX509KeyPair(s.file(CertFile), s.file(KeyFile))
	if err != nil {
		return nil, err
	}
	return pair.Leaf, nil
}

// usable is the certificate in force, if it is this node's and not over.
func (s store) usable(node string) (*x509.Certificate, error) {
	leaf, err := Load(s.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errNone
	case err != nil:
		return nil, err
	case leaf.Subject.CommonName != node:
		return nil, fmt.Errorf("%s is of %q, not of this node", s.file(CertFile), leaf.Subject.CommonName)
	case time.Now().After(leaf.NotAfter):
		return nil, fmt.Errorf("%s ended at %s", s.file(CertFile), leaf.NotAfter.Format(time.RFC3339))
	}
	return leaf, nil
}

// trust writes whom ovn-controller trusts, where that is another.
func (s store) trust(bundle []byte) error {
	if has, err := os.ReadFile(s.file(CAFile)); err == nil && string(has) == string(bundle) {
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return hostfile.Write(s.file(CAFile), bundle, 0o644)
}

// askedUnder tells that the pair in force was asked for while the CAs were these.
func (s store) askedUnder(cas string) bool {
	has, err := os.ReadFile(filepath.Join(s.dir, current, under))
	return err == nil && string(has) == cas
}

// put puts a pair in force, all of it at one instant.
func (s store) put(got login.Issued, cas string) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.dir, pairDir)
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{KeyFile: got.Key, CertFile: got.Cert, under: []byte(cas)} {
		err = errors.Join(err, hostfile.Write(filepath.Join(dir, name), text, 0o600))
	}
	// The step that puts them in force is the last.
	for _, l := range [][2]string{{filepath.Join(current, KeyFile), KeyFile}, {filepath.Join(current, CertFile), CertFile}, {filepath.Base(dir), current}} {
		if err == nil {
			err = link(l[0], s.file(l[1]))
		}
	}
	if err != nil {
		return err
	}
	return s.sweep(filepath.Base(dir))
}

// link puts a symbolic link in place by rename.
func link(to, at string) error {
	if has, err := os.Readlink(at); err == nil && has == to {
		return nil
	}
	next := at + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(to, next); err != nil {
		return err
	}
	return os.Rename(next, at)
}

// sweep removes former pairs, and what a killed agent had begun.
func (s store) sweep(keep string) error {
	list, err := os.ReadDir(s.dir)
	for _, e := range list {
		if strings.HasPrefix(e.Name(), pairDir) && e.Name() != keep {
			err = errors.Join(err, os.RemoveAll(s.file(e.Name())))
		}
	}
	return err
}

// digest is of the CAs, as they are compared.
func digest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\n")))
	return hex.EncodeToString(sum[:])
}
