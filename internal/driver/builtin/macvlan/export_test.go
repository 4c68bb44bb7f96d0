package macvlan

// BuryLink is what Del does with a link before the kernel deletes it.
var BuryLink = buryLink
