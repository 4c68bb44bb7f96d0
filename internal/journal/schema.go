package journal

import (
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/bbolt"
)

// schema is the form of the values: its version and how to come to it. The
// version grows whenever core.Record, core.Released, core.Attempt or core.Uplink
// gains, loses or changes a field (a test notices), because rows are read strictly.
type schema struct {
	version uint64
	// steps[n] turns version n into n+1, in the transaction given.
	steps map[uint64]func(*bbolt.Tx) error
}

var current = schema{version: 5, steps: map[uint64]func(*bbolt.Tx) error{
	1: splitKinds,
	2: func(*bbolt.Tx) error { return nil }, // port security: what was made before is without
	3: func(tx *bbolt.Tx) error { _, err := tx.CreateBucketIfNotExists(bucketNames[uplinks]); return err },
	4: func(*bbolt.Tx) error { return nil }, // claims, and changes of running pods: what was made before has none
}}

var (
	metaBucket = []byte("meta")
	schemaKey  = "schema"
)

// errNewer: a newer agent wrote the file. It is good, only not for us.
var errNewer = errors.New("written by a newer agent: run that version, or move the file away when no attachment of it lives any more")

// initialise makes all buckets of an empty file, also those that stay empty: one
// that is missing later is damage.
func initialise(tx *bbolt.Tx, version uint64) error {
	for _, name := range append([][]byte{metaBucket}, bucketNames[:]...) {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return putVersion(tx, version)
}

func putVersion(tx *bbolt.Tx, v uint64) error {
	r := row{data: strconv.AppendUint(nil, v, 10)}
	return tx.Bucket(metaBucket).Put([]byte(schemaKey), r.seal(schemaKey))
}

// getVersion: a file without a version is damaged, for create wrote one before
// the file had its name.
func getVersion(tx *bbolt.Tx) (uint64, error) {
	b := tx.Bucket(metaBucket)
	if b == nil {
		return 0, &corruptError{errors.New("bucket meta is missing")}
	}
	r, err := unseal(schemaKey, b.Get([]byte(schemaKey)))
	if err != nil {
		return 0, &corruptError{err}
	}
	v, err := strconv.ParseUint(string(r.data), 10, 64)
	if err != nil {
		return 0, &corruptError{err}
	}
	return v, nil
}

// migrate brings an older file to the wanted version, all steps in one
// transaction.
func migrate(db *bbolt.DB, want schema) error {
	var have uint64
	err := db.View(func(tx *bbolt.Tx) (err error) {
		have, err = getVersion(tx)
		return err
	})
	switch {
	case err != nil:
		return err
	case have == want.version:
		return nil
	case have > want.version:
		return fmt.Errorf("schema %d, this agent knows %d: %w", have, want.version, errNewer)
	}
	return db.Update(func(tx *bbolt.Tx) error {
		for v := have; v < want.version; v++ {
			step, ok := want.steps[v]
			if !ok {
				return &corruptError{fmt.Errorf("no agent ever wrote schema %d", v)}
			}
			if err := step(tx); err != nil {
				return fmt.Errorf("migrate schema %d: %w", v, err)
			}
		}
		return putVersion(tx, want.version)
	})
}
