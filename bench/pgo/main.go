// Command pgo makes one profile of many, for `go build -pgo`: pgo OUT IN...
// Of the machine that they were taken on it leaves nothing.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/google/pprof/profile"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: pgo OUT IN...")
		os.Exit(2)
	}
	if err := merge(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "pgo:", err)
		os.Exit(1)
	}
}

func merge(out string, in []string) error {
	var all []*profile.Profile
	for _, name := range in {
		p, err := read(name)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	sum, err := profile.Merge(all)
	if err != nil {
		return fmt.Errorf("merge %d profiles: %w", len(all), err)
	}
	for _, m := range sum.Mapping {
		m.File, m.BuildID = "", ""
	}
	sum.TimeNanos, sum.Comments = 0, nil
	fmt.Printf("%d profiles, %s of CPU\n", len(all), cpu(sum))
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	if err := sum.Write(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("write %s: %w", out, err)
	}
	return f.Close()
}

func read(name string) (*profile.Profile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	p, err := profile.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return p, nil
}

// cpu is what the samples stand for: their second value is in ns.
func cpu(p *profile.Profile) time.Duration {
	var sum int64
	for _, s := range p.Sample {
		sum += s.Value[1]
	}
	return time.Duration(sum).Round(time.Millisecond)
}
