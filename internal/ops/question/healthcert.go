package question

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ops/doctor"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
)

// certificates tells until when those are good that lie here: the chassis' and those of
// a member of central.
func (h health) certificates(context.Context) (out []doctor.Finding) {
	chassis, central := filepath.Join(h.Flags["state-dir"], "ovn"), cmp.Or(h.Flags["central-dir"], defaultCentral)
	for _, c := range []struct {
		name, dir string
		cas       []string
	}{
		{"chassis' certificate", chassis, []string{"ca.pem"}},
		{"central's certificate", central, []string{"central-ca.pem", "chassis-ca.pem"}},
	} {
		text, err := os.ReadFile(filepath.Join(c.dir, "cert.pem"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // there is no such part here, or a check of this machine says what it waits for
		}
		out = append(out, h.certificate(c.name, c.dir, text, err))
		for _, file := range c.cas {
			text, err := os.ReadFile(filepath.Join(c.dir, file))
			out = append(out, h.trust(filepath.Join(c.dir, file), text, err))
		}
	}
	return out
}

// bundles tells until when the CAs are good that the controllers publish.
func (h health) bundles(ctx context.Context) (out []doctor.Finding) {
	if h.API == nil {
		return nil
	}
	o, err := h.API.Get(ctx, query.ConfigMaps, h.Flags["install-namespace"], fairlead.CAName)
	if errors.Is(err, core.ErrNotFound) {
		return nil
	}
	if err != nil {
		return []doctor.Finding{finding("CAs", doctor.Warning, "as one who may get configmaps in "+h.Flags["install-namespace"], "not known: %v", err)}
	}
	for _, key := range slices.Sorted(maps.Keys(o.Data)) {
		text, _ := o.Data[key].(string)
		out = append(out, h.trust("ConfigMap "+fairlead.CAName+", "+key, []byte(text), nil))
	}
	return out
}

// certificate judges one that a part shows. It is renewed before two thirds of its
// life: one that is older waits for somebody.
func (h health) certificate(name, dir string, text []byte, err error) doctor.Finding {
	all, err := parsed(text, err)
	if err != nil {
		return finding(name, doctor.Failed, "ls -l "+dir, "%v", err)
	}
	c := all[0]
	next := "kubectl get csr, where its request says what it waits for; " + h.pods(controllerName) + ", one of which signs"
	switch left := c.NotAfter.Sub(h.now); {
	case h.now.Before(c.NotBefore):
		return finding(name, doctor.Failed, "set this machine's clock", "it is good from %s, which is to come by this machine's clock", day(c.NotBefore))
	case left <= 0:
		return finding(name, doctor.Failed, next, "it ended %s: OVN's databases refuse it", day(c.NotAfter))
	case left < c.NotAfter.Sub(c.NotBefore)/4:
		return finding(name, doctor.Warning, next, "it ends %s, and has not been renewed", day(c.NotAfter))
	}
	return finding(name, doctor.OK, "", "%s, until %s", c.Subject.CommonName, day(c.NotAfter))
}

// trust judges CAs of which one is enough: the former and the next one are beside it.
func (h health) trust(name string, text []byte, err error) doctor.Finding {
	all, err := parsed(text, err)
	if err != nil {
		return finding("CA", doctor.Failed, h.pods(controllerName)+", one of which publishes it", "%s: %v", name, err)
	}
	last := slices.MaxFunc(all, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	next := h.pods(controllerName) + ", one of which replaces it; by hand: docs/cluster.md, \"Another CA\""
	switch left := last.NotAfter.Sub(h.now); {
	case left <= 0:
		return finding("CA", doctor.Failed, next, "%s: the last one ended %s", name, day(last.NotAfter))
	case left < last.NotAfter.Sub(last.NotBefore)/4:
		return finding("CA", doctor.Warning, next, "%s: the last one ends %s, and has not been replaced", name, day(last.NotAfter))
	}
	return finding("CA", doctor.OK, "", "%s: %d, until %s", name, len(all), day(last.NotAfter))
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// parsed reads the certificates of a file; none is an error.
func parsed(text []byte, err error) (out []*x509.Certificate, _ error) {
	for err == nil {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, c)
		}
	}
	if err == nil && len(out) == 0 {
		err = errors.New("there is no certificate in it")
	}
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return out, nil
}
