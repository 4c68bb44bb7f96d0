package journal

import (
	"encoding/json"
	"testing"

	"github.com/fairlead/fairlead/internal/core"
)

// FuzzRecord: whatever stands under a record's key, reading it gives an error
// or a record that can be written again and reads the same.
func FuzzRecord(f *testing.F) {
	good, err := encodeRecord(record(1))
	if err != nil {
		f.Fatal(err)
	}
	key := record(1).Key.String()
	for _, data := range []string{string(good), `{}`, `{} {}`, `{"specs":[{"nic":{"mac":"02:00:00:00:00:01"}}]}`, `{"created":"x"}`, `[`, ``} {
		f.Add(row{data: []byte(data)}.seal(key))
	}
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0, 1, '{'})
	f.Fuzz(func(t *testing.T, value []byte) {
		check(t, key, value)
		// The checksum keeps most inputs from the decoder: let them pass too.
		check(t, key, row{data: value}.seal(key))
	})
}

func check(t *testing.T, key string, value []byte) {
	r, err := unseal(key, value)
	if err != nil {
		return
	}
	rec, err := r.record()
	if err != nil {
		return
	}
	data, err := encodeRecord(rec)
	if err != nil {
		return // a key or MAC that no agent writes
	}
	again, err := newRow(data, rec.Delivered).record()
	if err != nil {
		t.Fatalf("%s\nwas written as\n%s\nwhich cannot be read: %v", r.data, data, err)
	}
	if a, b := asJSON(t, rec), asJSON(t, again); a != b {
		t.Fatalf("%s\nreads back as\n%s", a, b)
	}
}

func asJSON(t *testing.T, r core.Record) string {
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// FuzzFile: any bytes at all as a database file are proven or refused, without
// a panic.
func FuzzFile(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 3*4096))
	f.Fuzz(func(_ *testing.T, data []byte) { _ = checkData(data) })
}
