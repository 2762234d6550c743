"""Objects that processes of one machine share: put once into a file in memory, mapped by whoever gets them."""
