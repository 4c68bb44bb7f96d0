package core

import (
	"cmp"
	"time"
)

// Moment is a point in time of this machine.
type Moment struct {
	BootID string
	// Boottime is CLOCK_BOOTTIME of that boot, which nobody can set; 0: not
	// known. Wall serves where it is not, and is set back now and then.
	Boottime time.Duration
	Wall     time.Time
}

// Compare is negative when m was before o: by the clock of their boot where they
// have one in common, by the wall clock otherwise.
func (m Moment) Compare(o Moment) int {
	if m.BootID == o.BootID && m.Boottime > 0 && o.Boottime > 0 {
		return cmp.Compare(m.Boottime, o.Boottime)
	}
	return m.Wall.Compare(o.Wall)
}

// Called is when the ADD was called, by Created where nobody noted it.
func (r *Record) Called() Moment {
	return Moment{BootID: r.Netns.BootID, Boottime: r.Boottime, Wall: r.Created}
}
