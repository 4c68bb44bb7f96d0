package ovs

// Tombstones is the number of host links that wait for the reaper; 0 when they
// cannot be listed.
func (d *Driver) Tombstones() int {
	n, err := d.count(GroupTombstone)
	if err != nil {
		return 0
	}
	return n
}
