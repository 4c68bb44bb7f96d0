package exec

import "github.com/fairlead/fairlead/internal/driver"

// Plugins are those that a driver carries out without a process.
func Plugins(d *Driver) map[string]driver.Plugin { return d.plugins }
