package exec

import "github.com/fairlead/fairlead/internal/driver"

// Plugins are those that a driver carries out without a process.
func Plugins(d driver.Driver) map[string]driver.Plugin {
	return d.(*Driver).plugins //nolint:forcetypeassert // the tests made it
}
