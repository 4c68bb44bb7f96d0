package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
)

// bbolt trusts its pages: a flipped bit in one can make it index out of its
// map in a goroutine of its own, recurse for ever in a circle of branch pages
// or allocate without end, none of which can be caught: of files with one to
// three random bits flipped, one in the first hundreds killed the process. So the
// page structure is proven here, from the file's bytes, before bbolt opens it:
// every page that can be reached lies in the file, is reached once and keeps
// its elements within its bounds. What the values say is the rows' checksums'
// matter. The format is bbolt's file format version 2 (its doc.go and
// internal/common).
const (
	pageHeader  = 16
	element     = 16 // of a branch page and of a leaf page alike
	bucketValue = 16

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketLeaf   = 0x01 // flag of a leaf element

	boltMagic   = 0xED0CDAED
	boltVersion = 2
	metaLen     = 64
	noFreelist  = ^uint64(0)
)

var native = binary.NativeEndian

// boltMeta is what the check needs of a meta page.
type boltMeta struct {
	pageSize             int
	root, freelist, next uint64 // page ids; next is the first never used
	txid                 uint64
}

// pageFile is a database file in memory and which of its pages were reached.
type pageFile struct {
	data []byte
	boltMeta
	seen []bool
}

// checkFile proves the page structure of a database file.
func checkFile(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := checkData(data); err != nil {
		return &corruptError{err}
	}
	return nil
}

func checkData(data []byte) error {
	m, err := newestMeta(data)
	if err != nil {
		return err
	}
	f := &pageFile{data: data, boltMeta: m}
	if f.next > uint64(len(data))/uint64(f.pageSize) {
		return fmt.Errorf("truncated: %d bytes, %d pages of %d are in use", len(data), f.next, f.pageSize)
	}
	f.seen = make([]bool, f.next)
	if err := f.tree(f.root); err != nil {
		return err
	}
	return f.free()
}

// newestMeta is the valid meta page of the last transaction. One of the two
// may be torn by a crash; bbolt goes on from the other.
func newestMeta(data []byte) (boltMeta, error) {
	var best boltMeta
	for _, off := range []int{0, os.Getpagesize()} {
		if m, ok := readMeta(data, off); ok && m.txid >= best.txid {
			best = m
		}
	}
	if best.pageSize == 0 {
		return best, errors.New("no valid meta page")
	}
	return best, nil
}

// readMeta reads the meta page at off; false unless its checksum is right.
func readMeta(data []byte, off int) (boltMeta, bool) {
	if off+pageHeader+metaLen > len(data) {
		return boltMeta{}, false
	}
	b := data[off+pageHeader:][:metaLen]
	h := fnv.New64a()
	_, _ = h.Write(b[:metaLen-8])
	ok := native.Uint32(b) == boltMagic && native.Uint32(b[4:]) == boltVersion && native.Uint64(b[metaLen-8:]) == h.Sum64()
	size := int(native.Uint32(b[8:]))
	return boltMeta{
		pageSize: size,
		root:     native.Uint64(b[16:]), freelist: native.Uint64(b[32:]),
		next: native.Uint64(b[40:]), txid: native.Uint64(b[48:]),
	}, ok && size >= pageHeader+metaLen
}

// page claims a page with its overflow; nobody else may reach any of it.
func (f *pageFile) page(id uint64) ([]byte, error) {
	if id < 2 || id >= f.next {
		return nil, fmt.Errorf("page %d is outside of the file", id)
	}
	start := id * uint64(f.pageSize)
	h := f.data[start:]
	n := uint64(native.Uint32(h[12:])) + 1
	if native.Uint64(h) != id || n > f.next-id {
		return nil, fmt.Errorf("page %d has a damaged header", id)
	}
	for i := id; i < id+n; i++ {
		if f.seen[i] {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		f.seen[i] = true
	}
	return f.data[start : start+n*uint64(f.pageSize)], nil
}

// tree proves a branch or leaf page and all below it.
func (f *pageFile) tree(id uint64) error {
	p, err := f.page(id)
	if err != nil {
		return err
	}
	switch flags := native.Uint16(p[8:]); flags {
	case branchPage:
		err = f.branch(p)
	case leafPage:
		err = f.leaf(p)
	default:
		err = fmt.Errorf("unexpected type %#x", flags)
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// elements calls do for each element with its offset in the page.
func elements(p []byte, do func(e []byte, off uint64) error) error {
	n := int(native.Uint16(p[10:]))
	if pageHeader+n*element > len(p) {
		return fmt.Errorf("%d elements do not fit", n)
	}
	for i := range n {
		off := pageHeader + i*element
		if err := do(p[off:off+element], uint64(off)); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

var errBounds = errors.New("reaches out of its page")

// branch proves the children; that its keys are in order is Check's matter.
func (f *pageFile) branch(p []byte) error {
	if native.Uint16(p[10:]) == 0 {
		return errors.New("branch without elements")
	}
	return elements(p, func(e []byte, off uint64) error {
		pos, key := uint64(native.Uint32(e)), uint64(native.Uint32(e[4:]))
		if off+pos+key > uint64(len(p)) {
			return errBounds
		}
		return f.tree(native.Uint64(e[8:]))
	})
}

// leaf proves bounds of keys and values, and buckets among the values.
func (f *pageFile) leaf(p []byte) error {
	return elements(p, func(e []byte, off uint64) error {
		flags, pos := native.Uint32(e), uint64(native.Uint32(e[4:]))
		key, val := uint64(native.Uint32(e[8:])), uint64(native.Uint32(e[12:]))
		start, end := off+pos+key, off+pos+key+val
		switch {
		case end > uint64(len(p)):
			return errBounds
		case flags == 0:
			return nil
		case flags != bucketLeaf:
			return fmt.Errorf("unexpected flags %#x", flags)
		}
		return f.bucket(p[start:end])
	})
}

// bucket proves a bucket: a page of its own, or one inside the value.
func (f *pageFile) bucket(v []byte) error {
	if len(v) < bucketValue {
		return errors.New("bucket is cut short")
	}
	if root := native.Uint64(v); root != 0 {
		return f.tree(root)
	}
	in := v[bucketValue:]
	if len(in) < pageHeader || native.Uint16(in[8:]) != leafPage {
		return errors.New("inline bucket is damaged")
	}
	return f.leaf(in)
}

// free proves that the free list names pages that nothing uses.
func (f *pageFile) free() error {
	if f.freelist == noFreelist {
		return nil
	}
	p, err := f.page(f.freelist)
	if err != nil {
		return fmt.Errorf("free list: %w", err)
	}
	if flags := native.Uint16(p[8:]); flags != freelistPage {
		return fmt.Errorf("free list: unexpected type %#x", flags)
	}
	n, ids := uint64(native.Uint16(p[10:])), p[pageHeader:]
	if n == 0xFFFF { // then the count stands in front of the ids
		n, ids = native.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids))/8 {
		return fmt.Errorf("free list: %d ids do not fit", n)
	}
	for i := range n {
		id := native.Uint64(ids[i*8:])
		if id < 2 || id >= f.next || f.seen[id] {
			return fmt.Errorf("free list: page %d is not free", id)
		}
		f.seen[id] = true
	}
	return nil
}
