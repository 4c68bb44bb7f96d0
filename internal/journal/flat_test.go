package journal

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/fairlead/fairlead/internal/core"
)

// flatSpec is what a spec was in schema 1.
type flatSpec struct {
	Key        core.Key           `json:"key"`
	Driver     string             `json:"driver"`
	Network    string             `json:"network"`
	Default    bool               `json:"default"`
	NoDefault  bool               `json:"noDefault"`
	Request    string             `json:"request"`
	Pod        core.Pod           `json:"pod"`
	Netns      core.Netns         `json:"netns"`
	Subnet     string             `json:"subnet"`
	HostIf     string             `json:"hostIf"`
	IfaceID    string             `json:"ifaceID"`
	NICType    string             `json:"nicType"`
	MAC        core.MAC           `json:"mac"`
	MTU        int                `json:"mtu"`
	Addrs      []netip.Prefix     `json:"addrs"`
	Gateways   []netip.Addr       `json:"gateways"`
	Routes     []core.Route       `json:"routes"`
	VLAN       int                `json:"vlan"`
	QoS        core.QoS           `json:"qos"`
	Bandwidth  *core.QoS          `json:"bandwidth"`
	Mirror     bool               `json:"mirror"`
	DNS        core.DNS           `json:"dns"`
	CNIVersion string             `json:"cniVersion"`
	Ports      []core.PortMapping `json:"ports"`
	Exec       *core.Exec         `json:"exec"`
	Failed     *core.Failure      `json:"failed"`
}

// spec is the Spec that is to become of it.
func (f flatSpec) spec() core.Spec {
	s := core.Spec{
		Key: f.Key, Driver: f.Driver, Network: f.Network, Default: f.Default, Request: f.Request,
		Pod: f.Pod, Netns: f.Netns, CNIVersion: f.CNIVersion,
	}
	nic := &core.NICSpec{
		Subnet: f.Subnet, IfaceID: f.IfaceID, Addrs: f.Addrs, Gateways: f.Gateways, Bandwidth: f.Bandwidth, NoDefault: f.NoDefault,
		Settings: core.Settings{
			PodSide: core.PodSide{MAC: f.MAC, MTU: f.MTU, Routes: f.Routes, DNS: f.DNS}, VLAN: f.VLAN, Tuning: core.Tuning{QoS: f.QoS, Mirror: f.Mirror},
		},
	}
	switch f.Driver {
	case "ovs":
		nic.OVS = &core.OVSPort{HostIf: f.HostIf, Type: f.NICType}
		s.NIC = nic
	case "addresses":
		s.Lent = nic
	case "exec":
		f.Exec.Failed = f.Failed
		s.Exec = f.Exec
	case "defroute":
		s.DefaultRoute = &core.DefaultRoute{Gateways: f.Gateways}
	case "hostport":
		s.HostPorts = &core.HostPorts{Addrs: f.Addrs, Ports: f.Ports}
	}
	return s
}

func specs(list []flatSpec) (out []core.Spec) {
	for _, f := range list {
		out = append(out, f.spec())
	}
	return out
}

// flatRecord is what a record was in schema 1.
type flatRecord struct {
	core.Record
	Specs []flatSpec `json:"specs"`
	Parts []struct {
		core.Part
		Specs   []flatSpec `json:"specs"`
		Restore []flatSpec `json:"restore"`
	} `json:"parts"`
	Displaced []flatSpec `json:"yielded"`
}

func (f flatRecord) record() core.Record {
	r := f.Record
	r.Specs, r.Displaced = specs(f.Specs), specs(f.Displaced)
	for _, p := range f.Parts {
		p.Part.Specs, p.Part.Restore = specs(p.Specs), specs(p.Restore)
		r.Parts = append(r.Parts, p.Part)
	}
	return r
}

// unpack writes a journal that an agent of schema 1 made.
func unpack(t *testing.T, dir string) string {
	t.Helper()
	file, err := os.Open("testdata/schema1.db.gz")
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	unzip, err := gzip.NewReader(file)
	require.NoError(t, err)
	data, err := io.ReadAll(unzip)
	require.NoError(t, err)
	path := filepath.Join(dir, dbName)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// flatRows reads the records of a file of schema 1.
func flatRows(t *testing.T, path string) (out []core.Record) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketNames[records]).ForEach(func(k, v []byte) error {
			r, err := unseal(string(k), v)
			require.NoError(t, err)
			var f flatRecord
			require.NoError(t, json.Unmarshal(r.data, &f))
			f.Delivered = r.flags&flagDelivered != 0
			out = append(out, f.record())
			return nil
		})
	}))
	return out
}

// TestFlatSpecsGetTheirKind: of a journal that an agent of schema 1 wrote every
// value is there after the migration, in the part of its kind, and it is there
// again at the next start.
func TestFlatSpecsGetTheirKind(t *testing.T) {
	dir := t.TempDir()
	want := flatRows(t, unpack(t, dir))
	seen := map[core.Kind]int{}
	failed, parts, displaced := 0, 0, 0
	for _, r := range want {
		for i := range r.Specs {
			s := &r.Specs[i]
			seen[s.Kind()]++
			if s.Kind() == core.KindDelegate && s.Exec.Failed != nil {
				failed++
			}
		}
		parts, displaced = parts+len(r.Parts), displaced+len(r.Displaced)
	}
	require.Len(t, seen, 5, "every kind")
	require.NotContains(t, seen, core.KindNone)
	require.NotZero(t, failed)
	require.NotZero(t, parts)
	require.NotZero(t, displaced)
	for range 2 {
		j, err := Open(dir, Options{OnCorrupt: func(string) { t.Error("quarantined") }})
		require.NoError(t, err)
		require.Equal(t, want, j.Records())
		require.True(t, j.Whole())
		require.NoError(t, j.Close())
	}
}

// TestFlatSpecsThatRotted: damage is found before a row is given another form.
func TestFlatSpecsThatRotted(t *testing.T) {
	path := unpack(t, t.TempDir())
	key := flatRows(t, path)[0].Key.String()
	put("records", key, []byte("\x00\x00\x00\x00\x00{}"))(t, path)
	_, _, err := load(path, current)
	require.ErrorAs(t, err, new(*corruptError))
	require.ErrorIs(t, err, errChecksum)
}

// TestFlatSpecsOnAFullDisk: an older file is written anew in the room that the
// former agent's ballast leaves.
func TestFlatSpecsOnAFullDisk(t *testing.T) {
	dir := tmpfs(t, "6m")
	path := unpack(t, dir)
	const more = 400
	edit(t, path, func(tx *bbolt.Tx) error {
		rows := tx.Bucket(bucketNames[records])
		var r row
		err := rows.ForEach(func(k, v []byte) error { // the shortest of them
			one, err := unseal(string(k), v)
			if r.data == nil || len(one.data) < len(r.data) {
				r = one
			}
			return err
		})
		for i := range more {
			key := fmt.Sprintf("c%d/eth0", i)
			err = errors.Join(err, rows.Put([]byte(key), r.seal(key)))
		}
		return err
	})
	require.NoError(t, os.WriteFile(filepath.Join(dir, ballastName), make([]byte, ballastSize), 0o600))
	fill(t, filepath.Join(dir, "filler"))
	j := open(t, dir)
	require.Greater(t, len(j.Records()), more)
	require.NoFileExists(t, filepath.Join(dir, ballastName))
	require.ErrorContains(t, j.Healthy(), "disk is full")
}
