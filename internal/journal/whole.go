package journal

import (
	"context"
	"fmt"

	"go.etcd.io/bbolt"
)

// wholeKey stands in the meta bucket once SetWhole was called.
const wholeKey = "whole"

// Whole tells that the journal knows every attachment of this node. One that
// Open has just made does not: an earlier file may be lost while its
// attachments live. It says so again at the next Open, until SetWhole.
func (j *Journal) Whole() bool { return j.whole.Load() }

// SetWhole says, for as long as the file lives, that all attachments are known:
// whoever could remember those of a lost journal has begun them all. An error
// has code 5.
func (j *Journal) SetWhole(ctx context.Context) error {
	if err := ctx.Err(); err != nil || j.whole.Load() {
		return err
	}
	err := j.putWhole()
	if err != nil {
		return asIO(fmt.Errorf("journal is whole: %w", err))
	}
	j.whole.Store(true)
	return nil
}

// putWhole writes beside the writer, which bbolt makes wait: it happens once in
// the life of a file.
func (j *Journal) putWhole() (err error) {
	defer catch(&err)
	return j.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(metaBucket).Put([]byte(wholeKey), row{}.seal(wholeKey))
	})
}

// getWhole reads the mark. Damage to it is damage to the file.
func getWhole(db *bbolt.DB) (whole bool, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		v := tx.Bucket(metaBucket).Get([]byte(wholeKey))
		if v == nil {
			return nil
		}
		whole = true
		if _, err := unseal(wholeKey, v); err != nil {
			return &corruptError{fmt.Errorf("%s: %w", wholeKey, err)}
		}
		return nil
	})
	return whole, err
}
