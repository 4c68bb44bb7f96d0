package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// disk makes writes durable at the price that bbolt pays: two flushes for each
// transaction, however many wait for it.
type disk struct {
	file  *os.File
	queue chan chan error
}

func openDisk(path string) (*disk, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	d := &disk{file: f, queue: make(chan chan error, 1024)}
	go d.run()
	return d, nil
}

// commit returns when a transaction that began later is durable.
func (d *disk) commit() error {
	done := make(chan error, 1)
	d.queue <- done
	return <-done
}

func (d *disk) run() {
	for first := range d.queue {
		waiting := []chan error{first}
		for len(d.queue) > 0 {
			waiting = append(waiting, <-d.queue)
		}
		err := d.flush()
		for _, done := range waiting {
			done <- err
		}
	}
}

// flush writes data, then the page that makes it valid.
func (d *disk) flush() error {
	for page := range int64(2) {
		if _, err := d.file.WriteAt(make([]byte, 4096), page*4096); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(d.file.Fd())); err != nil {
			return err
		}
	}
	return nil
}
