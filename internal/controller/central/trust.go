package central

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/controller/kube"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

// Files of a member's credentials.
const (
	fileKey     = "key.pem"
	fileCert    = "cert.pem"
	fileCentral = "central-ca.pem"
	fileChassis = "chassis-ca.pem"
)

// longestTurn bounds how much later a member starts its databases anew than the one
// before it.
const longestTurn = 30 * time.Second

// keys are a server's flags.
func (m *member) keys(trust string) []string {
	return []string{
		"--private-key=" + filepath.Join(m.Dir, fileKey), "--certificate=" + filepath.Join(m.Dir, fileCert),
		"--ca-cert=" + filepath.Join(m.Dir, trust),
	}
}

// load is what was written before; empty where something is missing.
func (m *member) load() kube.Credentials {
	var out [4][]byte
	for i, name := range []string{fileKey, fileCert, fileCentral, fileChassis} {
		text, err := os.ReadFile(filepath.Join(m.Dir, name))
		if err != nil {
			return kube.Credentials{}
		}
		out[i] = text
	}
	return kube.Credentials{Key: out[0], Cert: out[1], Central: string(out[2]), Chassis: string(out[3])}
}

// renewed writes new credentials where the children read them. A child loads key
// and certificate when both have changed, and looks at the key first: so it is the
// last that is written (OVS, lib/stream-ssl.c).
func (m *member) renewed(now kube.Credentials) error {
	var errs []error
	for _, f := range []struct {
		name string
		text []byte
	}{{fileCentral, []byte(now.Central)}, {fileChassis, []byte(now.Chassis)}, {fileCert, now.Cert}, {fileKey, now.Key}} {
		path := filepath.Join(m.Dir, f.name)
		if was, err := os.ReadFile(path); err == nil && string(was) == string(f.text) {
			continue
		}
		if err := hostfile.Write(path, f.text, 0o600); err != nil {
			errs = append(errs, err)
			break // a key without its certificate is worse than an old pair
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	m.mu.Lock()
	was := m.trusted
	m.trusted = now
	m.mu.Unlock()
	m.distrust(was, now)
	return nil
}

// distrust starts those anew who trust somebody that left their bundle: a process
// adds what it reads to what it trusts, and forgets nothing. The databases of one
// member come after those of another, so that their clusters keep a majority.
func (m *member) distrust(was, now kube.Credentials) {
	if left(was.Chassis, now.Chassis) {
		m.relay.again()
	}
	if !left(was.Central, now.Central) {
		return
	}
	turn := longestTurn
	if pair, err := tls.X509KeyPair(now.Cert, now.Key); err == nil {
		turn = min(turn, pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore)/20)
	}
	time.AfterFunc(time.Duration(slices.Index(m.all, m.Address))*turn, func() {
		m.sb.again()
		m.northd.again()
		m.againIC()
		time.AfterFunc(turn/2, m.nb.again)
	})
}

// left tells that a bundle had a certificate that the next one has not.
func left(was, now string) bool {
	for rest := []byte(was); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			return false
		}
		if !strings.Contains(now, string(pem.EncodeToMemory(b))) {
			return true
		}
	}
}
