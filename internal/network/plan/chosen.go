package plan

import (
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/whereabouts"
)

// Chosen writes the addresses that Specs have got from pools into the configurations of
// those who set them.
func Chosen(specs []core.Spec) error {
	for i := range specs {
		s := &specs[i]
		for _, c := range s.Claims {
			if c.Pool == nil || s.Exec == nil {
				continue
			}
			conf, err := whereabouts.Give(s.Exec.Conf, c)
			if err != nil {
				return core.WithCode(core.CodeConfig, "network "+s.Network, err)
			}
			s.ChangeExec().Conf = conf
		}
	}
	return nil
}
