// Before the first paint: the colours that the person chose last time.
"use strict";
{
  const chosen = localStorage.getItem("holdfast-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
}
