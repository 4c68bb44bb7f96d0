package rtnl

// NewUpperByDraft is what NewUpper does on kernels before 6.15 where the name
// is taken in the namespace of the device below.
func (c *Conn) NewUpperByDraft(u Upper) error { return c.newUpperByDraft(u) }

// UpperRequest is the request's attributes.
func (c *Conn) UpperRequest(u Upper) []byte { return u.message(c).Serialize() }
